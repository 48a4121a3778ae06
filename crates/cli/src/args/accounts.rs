//! `cenote share`, `cenote user`, `cenote group`, `cenote acl`.

use super::Confirmation;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Durability {
    /// When it is answered
    Write,
    /// When the file is closed or flushed
    Close,
    /// When the file is flushed; five seconds later at the latest
    Flush,
}

#[derive(Debug, Clone, Args)]
pub struct ShareOptions {
    /// A text that clients are shown beside the name
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Who may do what, such as Everyone:read or ann:full or staff:change; replaces all grants
    #[arg(long = "grant", value_name = "WHO:ACCESS")]
    pub grants: Vec<String>,
    /// When a write is durable on all copies: at once, when the file is closed or flushed, or when it is flushed
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Nobody changes anything through it
    #[arg(long, value_name = "BOOL")]
    pub read_only: Option<bool>,
    /// Only encrypted sessions reach it
    #[arg(long, value_name = "BOOL")]
    pub encrypt: Option<bool>,
    /// Handles, leases and locks survive the server; writes are durable when answered, as with --durability write
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub continuously_available: Option<bool>,
    /// Tell clients that any server may serve it; they cache reads at most. Only with --continuously-available
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub scale_out: Option<bool>,
    /// Hide what the user has no right to read
    #[arg(long, value_name = "BOOL")]
    pub access_based_enumeration: Option<bool>,
    /// Grant oplocks and leases
    #[arg(long, value_name = "BOOL")]
    pub caching: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum Share {
    /// List shares
    List,
    /// Show one share
    Show {
        /// The share's name
        name: String,
    },
    /// Share a volume, or a directory of it
    Create {
        /// The name that clients connect to; upper and lower case are the same
        name: String,
        /// The volume's name
        #[arg(long)]
        volume: String,
        /// Directory of the volume, / or \ between names, made if there is none [default: its root]
        #[arg(long, default_value = "", hide_default_value = true)]
        path: String,
        #[command(flatten)]
        options: ShareOptions,
    },
    /// Change a share's options
    Set {
        /// The share's name
        name: String,
        #[command(flatten)]
        options: ShareOptions,
    },
    /// Take a share away; its files stay on the volume
    Delete {
        /// The share's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct Password {
    /// The password; other users of this machine may see it while the command runs
    #[arg(long, value_name = "PW")]
    pub password: Option<String>,
    /// Read the password from standard input; on a terminal it is asked for and not shown
    #[arg(long)]
    pub password_stdin: bool,
}

#[derive(Debug, Subcommand)]
pub enum User {
    /// List users
    List,
    /// Show one user
    Show {
        /// The user's name
        name: String,
    },
    /// Add a user; without a password one is generated and printed
    Add {
        /// The name to log on with; upper and lower case are the same
        name: String,
        #[command(flatten)]
        password: Password,
        /// For people
        #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
        full_name: String,
        /// A group it becomes a member of; may be given several times
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// Change a user
    Set {
        /// The user's name
        name: String,
        #[command(flatten)]
        password: Password,
        /// For people
        #[arg(long, value_name = "TEXT")]
        full_name: Option<String>,
        /// false: it cannot log on
        #[arg(long, value_name = "BOOL")]
        enabled: Option<bool>,
    },
    /// Give a user another name: SID, password, groups, grants and files stay its own; its sessions end
    Rename {
        /// The user's name
        name: String,
        /// The name that it has from now on
        new_name: String,
    },
    /// Delete a user; its SID is never given again
    Delete {
        /// The user's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Subcommand)]
pub enum Group {
    /// List groups and their members
    List,
    /// Add a group
    Add {
        /// The group's name; no user may have it
        name: String,
    },
    /// Change a group's members
    Set {
        /// The group's name
        name: String,
        /// A user or group to add; may be given several times
        #[arg(long, value_name = "MEMBER")]
        add: Vec<String>,
        /// A user or group to remove; may be given several times
        #[arg(long, value_name = "MEMBER")]
        remove: Vec<String>,
    },
    /// Delete a group
    Delete {
        /// The group's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Subcommand)]
pub enum Acl {
    /// Show owner and entries
    Show {
        /// The share's name
        share: String,
        /// From the share's root, / or \ between names
        #[arg(default_value = "")]
        path: String,
    },
    /// Change owner or entries
    Set {
        /// The share's name
        share: String,
        /// From the share's root, / or \ between names
        #[arg(default_value = "")]
        path: String,
        /// The user or group that owns it from now on
        #[arg(long, value_name = "WHO")]
        owner: Option<String>,
        /// Allow, for what is below too: WHO:ACCESS with full, modify, read_execute, read, write or a mask such as 0x1200a9
        #[arg(long = "grant", value_name = "WHO:ACCESS")]
        grants: Vec<String>,
        /// Deny, for what is below too
        #[arg(long = "deny", value_name = "WHO:ACCESS")]
        denials: Vec<String>,
        /// Remove the entries of an account; inherited ones have to be revoked where they come from
        #[arg(long = "revoke", value_name = "WHO")]
        revocations: Vec<String>,
        #[command(flatten)]
        below: AclBelow,
    },
    /// Break inheritance: entries no longer come from above
    Protect {
        /// The share's name
        share: String,
        /// From the share's root, / or \ between names
        #[arg(default_value = "")]
        path: String,
        /// Drop the inherited entries instead of keeping them as its own
        #[arg(long)]
        drop: bool,
        #[command(flatten)]
        below: AclBelow,
    },
    /// Restore inheritance: entries come from above again, beside its own
    Inherit {
        /// The share's name
        share: String,
        /// From the share's root, / or \ between names
        #[arg(default_value = "")]
        path: String,
        #[command(flatten)]
        below: AclBelow,
    },
    /// Have what is below follow once more, such as after a server was stopped while it did
    Propagate {
        /// The share's name
        share: String,
        /// From the share's root, / or \ between names
        #[arg(default_value = "")]
        path: String,
        #[command(flatten)]
        below: AclBelow,
    },
}

/// The way in which files and directories below follow. Without options they keep entries of their own, and the command waits for them.
#[derive(Debug, clap::Args)]
pub struct AclBelow {
    /// Replace the entries of all files and directories below by inherited ones, in those that inherit nothing too
    #[arg(long)]
    pub recursive: bool,
    /// Do not wait for the files and directories below: `cenote job watch` shows them following
    #[arg(long)]
    pub detach: bool,
}

//! `cenote share`, `cenote user`, `cenote group`, `cenote acl`.

use super::Confirmation;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Durability {
    /// Before the write is answered
    Write,
    /// Before the file's CLOSE or FLUSH is answered
    Close,
    /// Before the file's FLUSH is answered, or within five seconds
    Flush,
}

#[derive(Debug, Clone, Args)]
pub struct ShareOptions {
    /// Text that clients show beside the name
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// A grant, such as Everyone:read, ann:full or staff:change; may be given several times; replaces all earlier grants
    #[arg(long = "grant", value_name = "WHO:ACCESS")]
    pub grants: Vec<String>,
    /// The moment from which a write survives a crash or power loss
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Refuse every change through this share
    #[arg(long, value_name = "BOOL")]
    pub read_only: Option<bool>,
    /// Admit encrypted sessions only
    #[arg(long, value_name = "BOOL")]
    pub encrypt: Option<bool>,
    /// Open files, leases and locks survive a restart or crash of the server; every write is durable before its answer
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub continuously_available: Option<bool>,
    /// Announce the share as one of a Scale-Out File Server; clients then cache reads only. Needs --continuously-available
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub scale_out: Option<bool>,
    /// Hide files and directories that the user may not read
    #[arg(long, value_name = "BOOL")]
    pub access_based_enumeration: Option<bool>,
    /// Let clients cache (oplocks and leases)
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
    /// Delete a share; its files stay on the volume
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
    /// Read the password from standard input; a terminal asks for it and does not show it
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
        /// The user's full name
        #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
        full_name: String,
        /// A group that the user joins; may be given several times
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// Change a user
    Set {
        /// The user's name
        name: String,
        #[command(flatten)]
        password: Password,
        /// The user's full name
        #[arg(long, value_name = "TEXT")]
        full_name: Option<String>,
        /// false: the user cannot log on
        #[arg(long, value_name = "BOOL")]
        enabled: Option<bool>,
    },
    /// Rename a user, who keeps SID, password, groups, grants and files; the user's sessions end
    Rename {
        /// The user's name
        name: String,
        /// The new name
        new_name: String,
    },
    /// Delete a user; no other user ever gets its SID
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
    /// Show a file's owner and access entries
    Show {
        /// The share's name
        share: String,
        /// Path from the share's root, with / or \ between names
        #[arg(default_value = "")]
        path: String,
    },
    /// Change a file's owner or access entries
    Set {
        /// The share's name
        share: String,
        /// Path from the share's root, with / or \ between names
        #[arg(default_value = "")]
        path: String,
        /// The new owner, a user or group
        #[arg(long, value_name = "WHO")]
        owner: Option<String>,
        /// Allow access, also to everything below: WHO:ACCESS with full, modify, read_execute, read, write or
        /// a mask such as 0x1200a9
        #[arg(long = "grant", value_name = "WHO:ACCESS")]
        grants: Vec<String>,
        /// Deny access, for everything below too
        #[arg(long = "deny", value_name = "WHO:ACCESS")]
        denials: Vec<String>,
        /// Remove an account's entries; revoke inherited entries on the directory that they come from
        #[arg(long = "revoke", value_name = "WHO")]
        revocations: Vec<String>,
        #[command(flatten)]
        below: AclBelow,
    },
    /// Stop inheriting entries from the directory above
    Protect {
        /// The share's name
        share: String,
        /// Path from the share's root, with / or \ between names
        #[arg(default_value = "")]
        path: String,
        /// Remove the inherited entries instead of keeping them as the directory's own
        #[arg(long)]
        drop: bool,
        #[command(flatten)]
        below: AclBelow,
    },
    /// Inherit entries from the directory above again, beside its own
    Inherit {
        /// The share's name
        share: String,
        /// Path from the share's root, with / or \ between names
        #[arg(default_value = "")]
        path: String,
        #[command(flatten)]
        below: AclBelow,
    },
    /// Apply a directory's inherited entries to everything below again, for example after a server stopped in the middle
    Propagate {
        /// The share's name
        share: String,
        /// Path from the share's root, with / or \ between names
        #[arg(default_value = "")]
        path: String,
        #[command(flatten)]
        below: AclBelow,
    },
}

/// The way in which files and directories below follow. Without options they keep entries of their own, and the command waits for them.
#[derive(Debug, clap::Args)]
pub struct AclBelow {
    /// Replace the entries of all files and directories below with inherited ones, also of those that inherit nothing
    #[arg(long)]
    pub recursive: bool,
    /// Do not wait until the files and directories below have followed; `cenote job watch` shows the progress
    #[arg(long)]
    pub detach: bool,
}

//! `cenote disk`, `cenote pool`, `cenote volume`.

use super::{Confirmation, Resiliency, Watch};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use types::size::parse_size;

/// Subcommands of `cenote disk`.
#[derive(Debug, Subcommand)]
pub enum Disk {
    /// List disks
    List,
    /// Add a disk that holds nothing to a pool
    Add {
        /// A file, a partition or a whole block device
        path: PathBuf,
        /// Name of the pool; may be left out if there is only one
        #[arg(long)]
        pool: Option<String>,
        /// Make a sparse file of this size if there is none
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        create: Option<u64>,
        #[command(flatten)]
        place: Place,
    },
    /// Move everything off a disk, which then leaves the pool
    Retire {
        /// The disk's ID, the beginning of the ID, or its path
        disk: String,
        /// Cancel the retirement: the disk takes data again
        #[arg(long, conflicts_with = "watch")]
        undo: bool,
        #[command(flatten)]
        watch: Watch,
    },
    /// Add a disk and move everything off the one that it replaces, which then leaves the pool
    Replace {
        /// ID of the old disk, the beginning of it, or its path
        old: String,
        /// A file, a partition or a whole block device that holds nothing
        path: PathBuf,
        /// Make a sparse file of this size if there is none
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        create: Option<u64>,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        watch: Watch,
    },
    /// Switch on the LED of a disk's slot, and print how to find the disk
    Locate {
        /// The disk's ID, the beginning of the ID, or its path
        disk: String,
        /// Switch it off
        #[arg(long)]
        off: bool,
    },
    /// Acknowledge a disk's errors so far: health reports only later ones
    Acknowledge {
        /// The disk's ID, the beginning of the ID, or its path
        disk: String,
    },
    /// Accept a disk that blocks its volumes: by an impossible epoch, or as an older image of itself (see health)
    ForgetPromises {
        /// The disk's ID, the beginning of the ID, or its path
        disk: String,
        /// Do not ask; DISK is the disk's ID or path, as given
        #[arg(long, value_name = "DISK")]
        yes: Option<String>,
    },
    /// Erase a disk that belongs to no pool of this server, so that you can add it to one
    Erase {
        /// A file, a partition or a whole block device
        path: PathBuf,
        /// Do not ask; PATH is the disk's, as given
        #[arg(long, value_name = "PATH")]
        yes: Option<String>,
    },
    /// Show a disk's label, contents and damage; changes nothing and needs no running server
    Inspect {
        /// A file, a partition or a whole block device
        path: PathBuf,
    },
}

/// The place of a disk: copies are kept apart at the widest level that has names.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Rack that the disk is in
    #[arg(long, default_value = "", hide_default_value = true)]
    pub rack: String,
    /// Server that the disk is in
    #[arg(long, default_value = "", hide_default_value = true)]
    pub node: String,
    /// Enclosure that the disk is in
    #[arg(long, default_value = "", hide_default_value = true)]
    pub enclosure: String,
}

/// Subcommands of `cenote pool`.
#[derive(Debug, Subcommand)]
pub enum Pool {
    /// List pools
    List,
    /// Show one pool and its disks
    Show {
        /// The pool's name
        name: String,
    },
    /// Make a pool of disks that hold nothing
    Create {
        /// The pool's name; upper and lower case are the same
        name: String,
        /// Files, partitions or whole block devices
        #[arg(required = true)]
        disks: Vec<PathBuf>,
        /// Make sparse files of this size if there are none
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        create: Option<u64>,
        /// Disks' worth of space kept for repair [default: one for each node, at most four; none with fewer than three disks]
        #[arg(long, value_name = "DISKS")]
        reserve_disks: Option<u32>,
    },
    /// Change how much of a pool is kept for repair
    Set {
        /// The pool's name
        name: String,
        /// Number of disks whose size is kept free for repair, the largest first
        #[arg(long, value_name = "DISKS")]
        reserve_disks: u32,
    },
    /// Delete a pool without volumes; its disks become free
    Delete {
        /// The pool's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Stop a pool, so that another server can import its disks
    Export {
        /// The pool's name
        name: String,
        /// Do it without asking; NAME is the pool's
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Import a pool from its disks: an exported pool, or one whose server died or lost its records
    Import {
        /// The pool's name or id; may be left out if the disks of one pool only are found
        name: Option<String>,
        /// A disk of the pool; may be given several times
        #[arg(long = "disk", value_name = "PATH")]
        disks: Vec<PathBuf>,
        /// A directory to look for its disks in; may be given several times [default: disks.search of the configuration]
        #[arg(long = "search", value_name = "DIR")]
        search: Vec<PathBuf>,
        /// The pool's name on this server
        #[arg(long = "as", value_name = "NAME")]
        rename: Option<String>,
        /// Key file (secret.key) of the server that had it: without it, users need new passwords
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Import although a missing disk may hold the newest data or records
        #[arg(long)]
        accept_missing: bool,
        /// Import the pool although its last server did not export it; NAME is the pool's
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Move data so that all disks are filled evenly
    Rebalance {
        /// The pool's name
        name: String,
        #[command(flatten)]
        watch: Watch,
    },
}

/// Subcommands of `cenote volume`.
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// List volumes
    List,
    /// Show one volume
    Show {
        /// The volume's name
        name: String,
    },
    /// Make a volume
    Create {
        /// The volume's name; upper and lower case are the same
        name: String,
        /// The volume's whole size, such as 100GiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Name of the pool; may be left out if there is only one
        #[arg(long)]
        pool: Option<String>,
        /// Copies of each byte
        #[arg(long, value_enum, default_value = "two-way-mirror")]
        resiliency: Resiliency,
        /// Take all space from the pool at once
        #[arg(long)]
        fixed: bool,
        /// Percentage used from which health warns [default: 90]
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
        warn_at: Option<u8>,
    },
    /// Change when health warns of a volume
    Set {
        /// The volume's name
        name: String,
        /// Percentage used from which health warns
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
        warn_at: u8,
    },
    /// Grow a volume
    Resize {
        /// The volume's name
        name: String,
        /// The volume's whole size, such as 100GiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
    },
    /// Destroy a volume and all data on it
    Delete {
        /// The volume's name
        name: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// List files with lost data: blocks of which no copy is intact
    Damage {
        /// The volume's name
        name: String,
    },
    /// Check metadata, allocation and all copies while clients work; changes nothing without --repair
    Check {
        /// The volume's name
        name: String,
        /// Check, list the repairs, ask, and rewrite damaged copies from intact ones
        #[arg(long)]
        repair: bool,
        /// Repair without asking; NAME is the volume's
        #[arg(long, value_name = "NAME", requires = "repair")]
        yes: Option<String>,
        #[command(flatten)]
        watch: Watch,
    },
}

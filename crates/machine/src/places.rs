//! Places of this machine in which a file may be a disk.
//!
//! Any caller who may add disks chooses devices freely. Files are another matter: the server makes or
//! overwrites them, with its own rights, which may be root's. Promises: no file of the server itself
//! and none of the operating system becomes a disk, none that strangers can write or that has another
//! name, and none in a directory that strangers can change; an operator uses files in no other
//! directories than the configured ones, and strangers can change none on the way from these down to
//! the file. A file's path that passed has no links, so that it leads to the same file when it is
//! opened. Blocks: asks file systems.

use rustix::process::{getegid, geteuid};
use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use types::is_unseen;

/// Folder of the data directory in which `quickstart` keeps its disks.
const OWN_DISKS: &str = "disks";
/// Directories of the operating system: files there are read as configuration, run or not stored at
/// all. `/dev/shm` holds ordinary files.
const SYSTEM: [&str; 12] =
    ["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"];
const SYSTEM_SPOOL: &str = "/var/spool";
/// Linux' limit (PATH_MAX, with the zero at its end).
const PATH_BYTES_MAX: usize = 4095;
const SHARED_MEMORY: &str = "/dev/shm";

/// Kinds of refused places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceErrorKind {
    /// Nothing is there.
    Missing,
    /// A caller who may choose any directory may use it.
    NotNamed,
    /// Nobody may use it.
    Unfit,
}

/// Why a path leads to no place for a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlaceError {
    /// Kind of the refusal.
    pub kind: PlaceErrorKind,
    /// The path, and what is wrong with it.
    pub message: String,
}

impl PlaceError {
    fn new(kind: PlaceErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// Directories whose files a caller may use for disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directories {
    /// Those that the configuration names.
    Named,
    /// All that are fit, unless the configuration names some.
    Any,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct DiskPlaces {
    /// The server's data directory.
    pub data: PathBuf,
    /// Configured directories (`disks.directories`); none: an administrator may use any.
    pub directories: Vec<PathBuf>,
    /// Files that the configuration names for something else.
    pub taken: Vec<PathBuf>,
}

impl DiskPlaces {
    /// Refuses a path at which a caller may use no disk. `is_new`: the server would make the file; `allowed`: the caller's directories.
    /// Returns the path to use: a file's without links, a device's as it is given.
    ///
    /// # Errors
    /// `NotNamed` if a caller with any directory may use it; else why nobody may.
    pub fn check(&self, path: &Path, is_new: bool, allowed: Directories) -> Result<PathBuf, PlaceError> {
        let shown = path.display();
        let invalid = |why: String| Err(PlaceError::new(PlaceErrorKind::Unfit, why));
        let found = match std::fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if is_new && error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(PlaceError::new(
                    PlaceErrorKind::Missing,
                    format!("there is no disk at {shown}: {error}"),
                ));
            }
        };
        if found.as_ref().is_some_and(|found| found.file_type().is_block_device()) {
            return Ok(path.to_owned());
        }
        if found.is_some_and(|found| !found.is_file()) {
            return invalid(format!("{shown} is neither a file nor a block device"));
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return invalid(format!("{shown} is no path of a file"));
        };
        let real = match path.canonicalize() {
            Ok(real) => real,
            // The file is new: a link that leads nowhere is not followed then.
            Err(_) => match self.made(parent).canonicalize() {
                Ok(parent) => parent.join(name),
                Err(error) => {
                    return invalid(format!("{shown} cannot be made: {}: {error}", parent.display()));
                }
            },
        };
        self.check_file(&real, allowed)?;
        Ok(real)
    }

    /// Returns the path by which to use a disk that a search found, or why none may be there.
    ///
    /// # Errors
    /// As [`DiskPlaces::check`], for any directory.
    pub fn check_found(&self, path: &Path) -> Result<PathBuf, String> {
        self.check(path, false, Directories::Any).map_err(|why| why.message)
    }

    /// The directory in which a file is to be made; the data directory's own for disks comes with its first one.
    fn made<'a>(&self, directory: &'a Path) -> &'a Path {
        if directory == self.real_data().join(OWN_DISKS) {
            let _ = DirBuilder::new().mode(0o700).create(directory);
        }
        directory
    }

    /// `real`: without links.
    fn check_file(&self, real: &Path, allowed: Directories) -> Result<(), PlaceError> {
        let shown = real.display();
        let invalid = |why: String| Err(PlaceError::new(PlaceErrorKind::Unfit, why));
        if self.is_own(real) {
            return invalid(format!(
                "{shown} is among the server's own files, which no disk lies between: name another directory"
            ));
        }
        let named = self.directories.iter().filter_map(|named| named.canonicalize().ok());
        let named = named.into_iter().find(|named| real.starts_with(named));
        let is_named = named.is_some();
        if !is_named && allowed == Directories::Named {
            return Err(PlaceError::new(
                PlaceErrorKind::NotNamed,
                format!(
                    "{shown} is a file, not a device, and its directory is not named in disks.directories"
                ),
            ));
        }
        if !is_named && !self.directories.is_empty() {
            return invalid(format!(
                "{shown} lies in none of disks.directories of the configuration: name one of these, or have the configuration name it"
            ));
        }
        if !is_named && is_of_system(real) {
            return invalid(format!(
                "{shown} lies in a directory of the operating system: name another one, or name it in disks.directories of the configuration"
            ));
        }
        demand_own(real, named.as_deref().or(real.parent()))
    }

    fn real_data(&self) -> PathBuf {
        self.data.canonicalize().unwrap_or_else(|_| self.data.clone())
    }

    fn is_own(&self, real: &Path) -> bool {
        let data = self.real_data();
        let is_taken = |taken: &PathBuf| taken.canonicalize().is_ok_and(|taken| taken == real);
        let is_disk_of_quickstart = real.parent() == Some(&data.join(OWN_DISKS));
        real.starts_with(&data) && !is_disk_of_quickstart || self.taken.iter().any(is_taken)
    }
}

fn is_of_system(real: &Path) -> bool {
    let is_below = |directories: &[&str]| directories.iter().any(|directory| real.starts_with(directory));
    is_below(&SYSTEM) && !is_below(&[SHARED_MEMORY]) || is_below(&[SYSTEM_SPOOL])
}

/// Refuses a file that strangers can write, and one below `top` that they can exchange. `real`: without links; the file may not be there yet.
fn demand_own(real: &Path, top: Option<&Path>) -> Result<(), PlaceError> {
    let shown = real.display();
    let invalid = |why: String| Err(PlaceError::new(PlaceErrorKind::Unfit, why));
    if let Ok(file) = std::fs::symlink_metadata(real) {
        if file.nlink() > 1 {
            return invalid(format!(
                "{shown} has another name, and may be something else by that: copy it (cp)"
            ));
        }
        if let Some(who) = foreign_writers(real, &file) {
            return invalid(format!(
                "{shown} is a file that {who} can change: root or the server's user owns a disk's file, and nobody else writes to \
                 it (chown, chmod go-w)"
            ));
        }
    }
    let ways =
        real.ancestors().skip(1).take_while(|directory| top.is_some_and(|top| directory.starts_with(top)));
    for directory in ways {
        let found = std::fs::symlink_metadata(directory).map_err(|error| {
            PlaceError::new(
                PlaceErrorKind::Unfit,
                format!("{} cannot be looked at: {error}", directory.display()),
            )
        })?;
        if let Some(who) = foreign_writers(directory, &found) {
            return invalid(format!(
                "{shown} lies in {}, which {who} can change: disks' files lie in directories that root or the server's user owns and \
                 nobody else writes to (chown, chmod go-w)",
                directory.display()
            ));
        }
    }
    Ok(())
}

/// Names those who, beside root and the server's user, can write a file, or make, rename and remove files in a directory; `None`: nobody.
fn foreign_writers(path: &Path, found: &Metadata) -> Option<String> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    if ![0, user].contains(&found.uid()) {
        return Some(format!("the user {}", found.uid()));
    }
    if found.mode() & 0o002 != 0 {
        return Some("everybody".to_owned());
    }
    if found.mode() & 0o020 == 0 {
        return None;
    }
    // With an access list these bits are the most that anybody in it may do.
    let mut list = [0_u8; 0];
    if rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut list).is_ok_and(|bytes| bytes > 0) {
        return Some("somebody on its access list (getfacl)".to_owned());
    }
    (![0, group].contains(&found.gid())).then(|| format!("the group {}", found.gid()))
}

/// Parses a caller's path.
///
/// # Errors
/// It does not begin at the root, holds `..` or characters that nobody sees, or is longer than any.
pub fn absolute(text: &str) -> Result<PathBuf, PlaceError> {
    if text.len() > PATH_BYTES_MAX {
        let message = format!("a path has at most {PATH_BYTES_MAX} bytes, and this one {}", text.len());
        return Err(PlaceError::new(PlaceErrorKind::Unfit, message));
    }
    if text.contains(is_unseen) {
        let message = format!("the path {text:?} holds characters that cannot be seen: rename the file");
        return Err(PlaceError::new(PlaceErrorKind::Unfit, message));
    }
    let path = PathBuf::from(text);
    let whole = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    whole.then_some(path).ok_or_else(|| {
        let message = format!("'{text}' is not an absolute path without ..: give the whole path");
        PlaceError::new(PlaceErrorKind::Unfit, message)
    })
}

/// Parses several paths.
///
/// # Errors
/// Errors of [`absolute`].
pub fn absolute_all(given: &[String]) -> Result<Vec<PathBuf>, PlaceError> {
    given.iter().map(|text| absolute(text)).collect()
}

/// Whether a path leads to the same file or device as another one, or to the device that the other is a partition of.
pub fn leads_to(path: &Path, other: &Path) -> bool {
    let (Ok(path), Ok(other)) = (path.canonicalize(), other.canonicalize()) else { return path == other };
    if path == other {
        return true;
    }
    let (path, other) = (path.to_str(), other.to_str());
    path.zip(other).is_some_and(|(whole, part)| whole.starts_with("/dev/") && is_partition_of(part, whole))
}

/// Compares the kernel's names: `sdb1` is of `sdb`, `nvme0n1p1` of `nvme0n1`.
fn is_partition_of(part: &str, whole: &str) -> bool {
    let number = part.strip_prefix(whole).map(|number| number.strip_prefix('p').unwrap_or(number));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Bench {
        root: tempfile::TempDir,
        places: DiskPlaces,
    }

    impl Bench {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            for directory in ["data", "data/cluster", "srv"] {
                fs::create_dir(root.path().join(directory)).unwrap();
                fs::set_permissions(root.path().join(directory), fs::Permissions::from_mode(0o700)).unwrap();
            }
            let places = DiskPlaces { data: root.path().join("data"), ..DiskPlaces::default() };
            Self { root, places }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn refusal(&self, path: &Path, allowed: Directories) -> Option<PlaceErrorKind> {
            self.places.check(path, true, allowed).err().map(|error| error.kind)
        }
    }

    #[test]
    fn a_path_that_shows_something_else_than_it_holds_is_refused() {
        for text in ["/srv/a\nhealth: healthy", "/srv/\u{1b}[31ma", "/srv/a\u{202E}b"] {
            assert_eq!(absolute(text).unwrap_err().kind, PlaceErrorKind::Unfit, "{text:?}");
        }
        assert_eq!(absolute("/srv/größe 1").unwrap(), Path::new("/srv/größe 1"));
    }

    #[test]
    fn no_file_of_the_data_directory_becomes_a_disk_by_whatever_path() {
        let bench = Bench::new();
        fs::write(bench.at("data/cluster/0.tmp"), "").unwrap();
        symlink(bench.at("data"), bench.at("srv/link")).unwrap();
        symlink(bench.at("data/cluster/0.tmp"), bench.at("srv/file")).unwrap();
        for name in [
            "data/mutes.new",
            "data/cluster/recovering",
            "data/cluster/0.tmp",
            "data/disks/below/x",
            "srv/link/x",
            "srv/file",
        ] {
            let refused = bench.refusal(&bench.at(name), Directories::Any);
            assert_eq!(refused, Some(PlaceErrorKind::Unfit), "{name}");
        }
        assert_eq!(bench.refusal(&bench.at("data/disks/disk-1.img"), Directories::Any), None);
        assert_eq!(bench.refusal(&bench.at("srv/disk"), Directories::Any), None);
    }

    #[test]
    fn nothing_of_the_operating_system_or_the_configuration_becomes_a_disk() {
        let mut bench = Bench::new();
        for path in ["/etc/evil", "/usr/evil", "/dev/evil", "/proc/evil", "/dev/null", "/etc"] {
            assert_eq!(
                bench.refusal(Path::new(path), Directories::Any),
                Some(PlaceErrorKind::Unfit),
                "{path}"
            );
        }
        fs::write(bench.at("srv/tls.key"), "").unwrap();
        bench.places.taken.push(bench.at("srv/tls.key"));
        assert_eq!(bench.refusal(&bench.at("srv/tls.key"), Directories::Any), Some(PlaceErrorKind::Unfit));
    }

    #[test]
    fn a_directory_that_others_write_to_holds_no_disks() {
        let bench = Bench::new();
        let directory = bench.at("srv");
        for mode in [0o777, 0o1777] {
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(bench.refusal(&bench.at("srv/x"), Directories::Any), Some(PlaceErrorKind::Unfit));
        }
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(bench.refusal(&bench.at("srv/x"), Directories::Any), None);
        assert_eq!(bench.refusal(&bench.at("none/x"), Directories::Any), Some(PlaceErrorKind::Unfit));
    }

    #[test]
    fn a_file_that_others_write_exchange_or_know_by_another_name_is_no_disk() {
        let mut bench = Bench::new();
        bench.places.directories.push(bench.at("srv"));
        let mode = |name: &str, mode| {
            fs::set_permissions(bench.at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        let is_refused =
            |name: &str| bench.refusal(&bench.at(name), Directories::Named) == Some(PlaceErrorKind::Unfit);
        fs::create_dir(bench.at("srv/open")).unwrap();
        fs::create_dir(bench.at("srv/open/own")).unwrap();
        fs::write(bench.at("srv/open/own/disk"), "").unwrap();
        for (of_open, refused) in [(0o755, false), (0o777, true)] {
            mode("srv/open", of_open);
            assert_eq!((is_refused("srv/open/own/new"), is_refused("srv/open/own/disk")), (refused, refused));
        }
        fs::write(bench.at("srv/disk"), "").unwrap();
        mode("srv/disk", 0o666);
        assert!(is_refused("srv/disk"), "everybody writes it");
        mode("srv/disk", 0o644);
        assert!(!is_refused("srv/disk"));
        fs::hard_link(bench.at("srv/disk"), bench.at("data/mutes.json")).unwrap();
        assert!(is_refused("srv/disk"), "it is the server's own by another name");
    }

    #[test]
    fn a_file_is_used_by_the_path_that_was_looked_at() {
        let bench = Bench::new();
        fs::create_dir(bench.at("srv/there")).unwrap();
        symlink(bench.at("srv/there"), bench.at("link")).unwrap();
        let used = bench.places.check(&bench.at("link/disk"), true, Directories::Any).unwrap();
        assert_eq!(used, bench.at("srv/there").canonicalize().unwrap().join("disk"));
    }

    #[test]
    fn an_operator_uses_files_where_the_configuration_says_and_then_nobody_uses_others() {
        let mut bench = Bench::new();
        fs::write(bench.at("srv/there"), "").unwrap();
        for name in ["srv/new", "srv/there"] {
            assert_eq!(
                bench.refusal(&bench.at(name), Directories::Named),
                Some(PlaceErrorKind::NotNamed),
                "{name}"
            );
        }
        bench.places.directories.push(bench.at("srv"));
        assert_eq!(bench.refusal(&bench.at("srv/new"), Directories::Named), None);
        assert_eq!(bench.refusal(&bench.at("x"), Directories::Named), Some(PlaceErrorKind::NotNamed));
        assert_eq!(bench.refusal(&bench.at("x"), Directories::Any), Some(PlaceErrorKind::Unfit));
        let own = bench.at("data/x");
        bench.places.directories.push(bench.at("data"));
        assert_eq!(
            bench.refusal(&own, Directories::Named),
            Some(PlaceErrorKind::Unfit),
            "it stays the server's"
        );
    }

    #[test]
    fn a_disk_is_known_by_any_path_that_leads_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("one"), "").unwrap();
        fs::write(at("one1"), "").unwrap();
        symlink(at("one"), at("link")).unwrap();
        assert!(leads_to(&at("link"), &at("one")) && leads_to(&at("one"), &at("link")));
        // Only devices have partitions.
        assert!(!leads_to(&at("one"), &at("one1")) && !leads_to(&at("gone"), &at("one")));
        assert!(
            is_partition_of("/dev/sdb1", "/dev/sdb") && is_partition_of("/dev/nvme0n1p2", "/dev/nvme0n1")
        );
        assert!(!is_partition_of("/dev/sdbc", "/dev/sdb") && !is_partition_of("/dev/sdb", "/dev/sdb"));
    }
}

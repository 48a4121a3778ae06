//! The files in which a running server leaves its API's address and the token for commands, and their owners.
//!
//! Promises: no command takes an address or a token from a file that another user may have put there. A
//! command sends passwords and the token to the address that it finds, so a stranger's file would mean
//! a stranger's listener. Never writes.

use crate::args::Access;
use crate::failure::Failure;
use api::{ADDRESS_FILE, TOKEN_FILE};
use std::fs::Metadata;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory that a trial server uses if none is named.
const NEAR: &str = "cenote-data";
/// The directory of the packaged service.
const SERVICE: &str = "/var/lib/cenote";

const ROOT: u32 = 0;
/// Write access of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// The folder in which the running server keeps its files.
pub fn data_directory(access: &Access) -> PathBuf {
    named_directory(access).unwrap_or_else(default_directory)
}

fn named_directory(access: &Access) -> Option<PathBuf> {
    access.data.clone().or_else(|| std::env::var_os("CENOTE_DATA").map(PathBuf::from))
}

/// The default directory of commands.
fn default_directory() -> PathBuf {
    let near = PathBuf::from(NEAR);
    if near.is_dir() { near } else { SERVICE.into() }
}

/// The folder of a trial server in the current one, for commands that look nowhere else. A missing
/// directory belongs to nobody.
///
/// # Errors
/// As [`demand_own`].
pub fn near_directory() -> Result<PathBuf, Failure> {
    let near = PathBuf::from(NEAR);
    demand_own(&Access::default(), &near)?;
    Ok(near)
}

/// Demands that the files in `data` are those of a server that this user trusts: of root, of the
/// directory's owner or of the user, and that nobody else can write them. A directory that was only
/// found in the current folder has to be the user's own or root's; a named one may be another user's.
///
/// A missing file is no error here: its reader reports it.
///
/// # Errors
/// The owner of the directory or the file, and how to use it all the same.
pub(crate) fn demand_own(access: &Access, data: &Path) -> Result<(), Failure> {
    let user = rustix::process::geteuid().as_raw();
    let is_found = named_directory(access).is_none() && data == Path::new(NEAR);
    let Some(directory) = look(data)? else { return Ok(()) };
    if is_found && ![user, ROOT].contains(&directory.uid()) {
        return Err(Failure::new(format!(
            "./{NEAR} is another user's (user id {}), and what it holds decides where passwords are sent: nothing was done; if you \
             trust its owner, name it: --data ./{NEAR}",
            directory.uid()
        )));
    }
    demand_closed(data, &directory)?;
    let trusted = [user, ROOT, directory.uid()];
    for name in [TOKEN_FILE, ADDRESS_FILE] {
        let path = data.join(name);
        let Some(file) = look(&path)? else { continue };
        if !trusted.contains(&file.uid()) {
            return Err(Failure::new(format!(
                "{} belongs to user id {}, not to the owner of its directory: nothing was done; remove it and start the server again",
                path.display(),
                file.uid()
            )));
        }
        demand_closed(&path, &file)?;
    }
    Ok(())
}

fn look(path: &Path) -> Result<Option<Metadata>, Failure> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        // A reader without access cannot read the token either, which fails with the file's name.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(None)
        }
        Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))),
    }
}

fn demand_closed(path: &Path, found: &Metadata) -> Result<(), Failure> {
    let mode = found.mode() & 0o7777;
    if mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} has mode {mode:03o}, so others can put their own server's address there: nothing was done; chmod go-w {}",
        path.display(),
        path.display()
    )))
}

/// Returns the API's address of a data directory's server.
///
/// # Errors
/// No server is found, with the remedy.
pub fn address_of(data: &Path) -> Result<SocketAddr, Failure> {
    let file = data.join(ADDRESS_FILE);
    let not_running = |why: String| {
        Failure::new(format!(
            "no running server is found in {}: {why}; start it (cenote serve, or cenote quickstart), or say where it is \
             with --data DIR or --api ADDR:PORT",
            data.display()
        ))
    };
    let text = std::fs::read_to_string(&file).map_err(|error| not_running(error.to_string()))?;
    let address: SocketAddr =
        text.trim().parse().map_err(|_| not_running(format!("{} holds no address", file.display())))?;
    if !address.ip().is_loopback() {
        return Err(not_running(format!("{} names {address}, which is not this machine", file.display())));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn named(data: &Path) -> Access {
        Access { data: Some(data.to_owned()), ..Access::default() }
    }

    #[test]
    fn files_that_others_can_write_are_refused_with_their_name() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        set_permissions(data, Permissions::from_mode(0o755)).unwrap();
        let address = data.join(ADDRESS_FILE);
        write(&address, "127.0.0.1:1").unwrap();
        set_permissions(&address, Permissions::from_mode(0o644)).unwrap();
        demand_own(&named(data), data).unwrap();
        set_permissions(&address, Permissions::from_mode(0o664)).unwrap();
        let refused = demand_own(&named(data), data).expect_err("a group may write it").message;
        assert!(refused.contains("api.address") && refused.contains("664"), "{refused}");
        set_permissions(&address, Permissions::from_mode(0o644)).unwrap();
        set_permissions(data, Permissions::from_mode(0o777)).unwrap();
        let refused = demand_own(&named(data), data).expect_err("anybody may write it").message;
        assert!(refused.contains("777"), "{refused}");
    }

    #[test]
    fn an_address_file_leads_to_this_machine_only() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(ADDRESS_FILE);
        write(&file, "127.0.0.1:9445\n").unwrap();
        assert_eq!(address_of(directory.path()).unwrap().port(), 9445);
        write(&file, "192.0.2.1:9445\n").unwrap();
        let refused = address_of(directory.path()).expect_err("another machine").message;
        assert!(refused.contains("not this machine"), "{refused}");
    }
}

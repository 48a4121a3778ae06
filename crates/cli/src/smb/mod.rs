//! `cenote smb`: files of any SMB server, without a mount, over TCP or SMB Direct.
//!
//! Promises: a password comes from a file or the environment, never from the command line. Never talks to the API.

mod access;
mod copy;

use super::args;
use super::output::{self, Align, Column};
use crate::printable::println;
use access::{connect, location};
use api::printed::RemoteFile;
use api_client::Failure;
use smb_client::{Client, ClientError, FileStatus, Location, Tree};
use types::FileTime;
use types::size::show_size;

/// # Errors
/// The message to print.
pub fn run(command: args::Smb, is_json: bool) -> Result<(), Failure> {
    match command {
        args::Smb::Ls { place, how } => list(&location(&place)?, &how, is_json),
        args::Smb::Stat { place, how } => stat(&location(&place)?, &how, is_json),
        args::Smb::Get { place, target, recursive, how } => {
            copy::get(&location(&place)?, target, recursive, &how, is_json)
        }
        args::Smb::Put { source, place, recursive, how } => {
            copy::put(&source, location(&place)?, recursive, &how, is_json)
        }
        args::Smb::Mkdir { place, parents, how } => {
            copy::make_directory(&location(&place)?, parents, &how, is_json)
        }
        args::Smb::Rm { place, recursive, confirmation, how } => {
            let confirmation = recursive.then_some(&confirmation);
            copy::remove(&location(&place)?, confirmation, &how, is_json)
        }
    }
}

/// An error of the server or the way to it, with the place.
fn failed(place: &Location, error: &ClientError) -> Failure {
    Failure::new(format!("{place}: {error}"))
}

/// Returns why TCP was taken, if the user chose a transport: others have no use for it.
fn fallback_told<'a>(client: &'a Client, how: &args::SmbOptions) -> Option<&'a str> {
    how.transport.and_then(|_| client.fallback())
}

fn open_tree(place: &Location, how: &args::SmbOptions) -> Result<(Client, Tree), Failure> {
    let mut client = connect(place, how)?;
    let tree = client.tree_connect(&place.share).map_err(|error| failed(place, &error))?;
    Ok((client, tree))
}

fn list(place: &Location, how: &args::SmbOptions, is_json: bool) -> Result<(), Failure> {
    let (mut client, tree) = open_tree(place, how)?;
    let mut entries = client.list(tree, &place.path, "*").map_err(|error| failed(place, &error))?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    if is_json {
        let shown: Vec<_> = entries.iter().map(|entry| as_json(&entry.name, &entry.status)).collect();
        return output::json(&shown);
    }
    let row = |name: &str, status: &FileStatus| {
        let kind = if status.is_directory() { "directory" } else { "file" };
        let size = if status.is_directory() { String::new() } else { show_size(status.size_bytes) };
        vec![name.to_owned(), kind.to_owned(), size, show_time(status.written)]
    };
    let columns = [
        Column("NAME", Align::Left),
        Column("KIND", Align::Left),
        Column("SIZE", Align::Right),
        Column("WRITTEN (UTC)", Align::Left),
    ];
    let rows = entries.iter().map(|entry| row(&entry.name, &entry.status)).collect();
    output::table(&columns, rows, "nothing there");
    Ok(())
}

fn stat(place: &Location, how: &args::SmbOptions, is_json: bool) -> Result<(), Failure> {
    let (mut client, tree) = open_tree(place, how)?;
    let status = client.stat(tree, &place.path).map_err(|error| failed(place, &error))?;
    if is_json {
        return output::json(&as_json(&place.path, &status));
    }
    output::pairs(&[
        ("path", place.path.replace('\\', "/")),
        ("kind", if status.is_directory() { "directory" } else { "file" }.to_owned()),
        ("size", format!("{} ({} bytes)", show_size(status.size_bytes), status.size_bytes)),
        ("allocated", show_size(status.allocated_bytes)),
        ("created", show_time(status.created)),
        ("written", show_time(status.written)),
        ("changed", show_time(status.changed)),
        ("accessed", show_time(status.accessed)),
        ("attributes", format!("{:#x}", status.attributes)),
        ("transport", if client.is_rdma() { "SMB Direct" } else { "TCP" }.to_owned()),
    ]);
    if let Some(reason) = fallback_told(&client, how) {
        println!("no SMB Direct: {reason}");
    }
    Ok(())
}

fn as_json(name: &str, status: &FileStatus) -> RemoteFile {
    RemoteFile {
        name: name.replace('\\', "/"),
        is_directory: status.is_directory(),
        size_bytes: status.size_bytes,
        allocated_bytes: status.allocated_bytes,
        created_unix_s: unix_seconds(status.created),
        written_unix_s: unix_seconds(status.written),
        changed_unix_s: unix_seconds(status.changed),
        accessed_unix_s: unix_seconds(status.accessed),
        attributes: status.attributes,
    }
}

/// Whole seconds since 1970-01-01 00:00 UTC; FILETIME reaches some 10^12 of them.
fn unix_seconds(time: FileTime) -> i64 {
    time.to_unix_nanos().div_euclid(1_000_000_000) as i64
}

fn show_time(time: FileTime) -> String {
    output::show_utc(unix_seconds(time))
}

#[cfg(test)]
mod tests {
    use super::{location, show_time};
    use types::FileTime;

    #[test]
    fn what_is_no_place_is_refused_with_the_form_it_should_have() {
        for wrong in ["", "filer/demo", "smb://filer", "smb://ana:secret@filer/demo", "//filer:x/demo"] {
            let error = location(wrong).expect_err("is refused").message;
            assert!(error.contains("//SERVER/SHARE/PATH"), "{wrong}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(show_time(FileTime::from_unix_nanos(0)), "1970-01-01 00:00:00");
        assert_eq!(show_time(FileTime::from_unix_nanos(951_827_696_000_000_000)), "2000-02-29 12:34:56");
        assert_eq!(show_time(FileTime(0)), "1601-01-01 00:00:00");
    }
}

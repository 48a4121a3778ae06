//! Erasure of disks that belong to no pool here.
//!
//! Promises: a disk of a pool of this server, one that is mounted or otherwise in use on this
//! machine, and one that another process has open are refused with the reason. All of that is
//! checked before the first write, and the disk is locked meanwhile. Blocks, so it runs on helper
//! threads.

use crate::disks::Disks;
use crate::error::{Done, Error, ErrorKind};
use crate::formatting::open;
use crate::pools::Pools;
use crate::tasks::Tasks;
use disk::users::users_of;
use disk::{Disk, partition};
use records::PoolRecord;
use records::image::PoolImage;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use store::FormatError;
use types::size::show_size;
use types::{DiskId, PoolId};

/// Erases disks.
#[derive(Clone)]
pub struct Erasing {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) disks: Rc<Disks>,
    pub(crate) pools: Rc<Pools>,
}

/// Disks and pools that belong to this server.
struct Own {
    disks: Vec<(DiskId, PathBuf)>,
    pools: Vec<(PoolId, String)>,
}

impl Erasing {
    /// Describes the contents of the disk at `path`, if it may be erased; erases it if that `is_confirmed`.
    ///
    /// # Errors
    /// The reason why it may not be, or could not be; see [`ErrorKind`].
    pub async fn erase(&self, path: PathBuf, is_confirmed: bool) -> Done<String> {
        let own = self.own();
        let time_bound = self.disks.timeout();
        let erased = self.tasks.blocking(move || erase(&path, &own, time_bound, is_confirmed)).await;
        erased.unwrap_or_else(|| Err(Error::io("no thread to look at the disk on")))
    }

    fn own(&self) -> Own {
        let slots = self.disks.slots();
        let disks = slots.values().map(|slot| (slot.record.id, PathBuf::from(&slot.record.path))).collect();
        let pools = self.pools.ids().into_iter().map(|pool| (pool, self.pools.name(pool))).collect();
        Own { disks, pools }
    }
}

fn erase(path: &Path, own: &Own, time_bound: Duration, is_confirmed: bool) -> Done<String> {
    let shown = path.display();
    let real =
        path.canonicalize().map_err(|why| Error::new(ErrorKind::NotFound, format!("{shown}: {why}")))?;
    let is_own = |other: &PathBuf| other.canonicalize().is_ok_and(|other| lies_on(&other, &real));
    if let Some((disk, _)) = own.disks.iter().find(|(_, other)| is_own(other)) {
        let why = format!(
            "{shown} is disk {disk} of a pool of this server: `cenote disk retire {disk}` empties it first"
        );
        return Err(Error::new(ErrorKind::Conflict, why));
    }
    let users = users_of(path);
    if !users.is_empty() {
        let why = format!("{shown} is in use on this machine: {}. Free it first", users.join(", "));
        return Err(Error::new(ErrorKind::Conflict, why));
    }
    let held = look(path, own, time_bound)?;
    if is_confirmed {
        let disk = open(path, time_bound)?;
        store::wipe(disk).map_err(|why| Error::io(format!("{shown} was not erased: {why}")))?;
        partition::remove(path)
            .map_err(|why| Error::io(format!("{shown} was erased, but for its partition table: {why}")))?;
        tracing::warn!(path = %shown, held, "a disk was erased");
    }
    Ok(held)
}

/// Whether a disk of ours is the same device or file, or a partition of it.
fn lies_on(own: &Path, real: &Path) -> bool {
    own == real || partition::whole_device_of(own).is_some_and(|whole| whole == real)
}

/// Describes the contents of the disk.
///
/// # Errors
/// The disk belongs to a pool of this server, or cannot be read.
fn look(path: &Path, own: &Own, time_bound: Duration) -> Done<String> {
    let disk = open(path, time_bound)?;
    let size = show_size(disk.info().size_bytes);
    let found = match store::refuse_used_disk(disk) {
        Ok(_) => return Ok(format!("a disk of {size} that holds nothing known")),
        Err(FormatError::TooSmall { .. }) => {
            return Ok(format!("{size}, too small for a disk of a pool; nobody looked at what it holds"));
        }
        Err(FormatError::InUse { disk, pool }) => (disk, pool),
        Err(FormatError::Disk(why)) => {
            return Err(Error::io(format!("{} cannot be read: {why}", path.display())));
        }
        Err(why) => return Ok(format!("a disk of {size}: {why}")),
    };
    let (disk, pool) = found;
    let is_own = own.disks.iter().any(|(own, _)| *own == disk);
    if let Some((_, name)) = own.pools.iter().find(|(own, _)| *own == pool).filter(|_| is_own) {
        let why = format!("{} is disk {disk} of pool '{name}' of this server", path.display());
        return Err(Error::new(ErrorKind::Conflict, why));
    }
    Ok(format!("a disk of {size} that belongs to {}", whose(path, pool, time_bound)))
}

/// Describes the pool and the server that the disk belongs to, as far as its records show.
fn whose(path: &Path, pool: PoolId, time_bound: Duration) -> String {
    let image = open(path, time_bound).ok().and_then(|disk| store::inspect(disk).ok());
    let image = image.and_then(|found| PoolImage::parse(&found.records).ok());
    let Some(image) = image else { return format!("pool {pool}, whose records it does not tell") };
    let name = image.records::<PoolRecord>().ok().and_then(|records| Some(records.first()?.name.clone()));
    let given_up = if image.header.exported { ", which gave it up" } else { ", which did not give it up" };
    format!("pool '{}' of server {}{given_up}", name.unwrap_or_else(|| pool.to_string()), image.header.host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    fn nobody() -> Own {
        Own { disks: Vec::new(), pools: Vec::new() }
    }

    #[test]
    fn a_disk_is_looked_at_first_and_holds_nothing_afterwards() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk");
        disk::create_file_disk(&path, 1 << 30).expect("a disk");
        let parameters =
            store::FormatParameters::new(DiskId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        store::format(open(&path, BOUND).expect("the disk"), parameters).expect("a label");
        let held = erase(&path, &nobody(), BOUND, false).expect("it may be erased");
        assert!(held.contains("belongs to pool"), "{held}");
        assert!(store::identify(open(&path, BOUND).expect("the disk")).is_ok(), "nothing was changed");
        erase(&path, &nobody(), BOUND, true).expect("it is erased");
        store::refuse_used_disk(open(&path, BOUND).expect("the disk")).map(drop).expect("it holds nothing");
        let held = erase(&path, &nobody(), BOUND, false).expect("it may be erased");
        assert!(held.contains("nothing known"), "{held}");
    }

    #[test]
    fn a_foreign_file_system_is_named_and_is_gone_at_both_ends() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk");
        let mut bytes = vec![0x77; 4 << 20];
        bytes[..4].copy_from_slice(b"XFSB");
        std::fs::write(&path, &bytes).expect("a disk");
        let held = erase(&path, &nobody(), BOUND, true).expect("it is erased");
        let after = std::fs::read(&path).expect("the disk");
        assert!(
            after.len() == bytes.len()
                && after[..1 << 20].iter().chain(&after[3 << 20..]).all(|byte| *byte == 0)
        );
        assert_eq!(after[2 << 20], 0x77, "{held}");
    }

    #[test]
    fn disks_of_this_server_and_disks_in_use_are_refused_with_the_reason() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk");
        disk::create_file_disk(&path, 1 << 30).expect("a disk");
        let (disk, pool) = (DiskId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let own = Own { disks: vec![(disk, path.clone())], pools: vec![(pool, "pool".to_owned())] };
        let refused = erase(&path, &own, BOUND, true).expect_err("ours");
        assert!(
            refused.kind == ErrorKind::Conflict && refused.message.contains("of this server"),
            "{refused}"
        );
        // Known by its label, at another path.
        store::format(open(&path, BOUND).expect("the disk"), store::FormatParameters::new(disk, pool))
            .expect("a label");
        let elsewhere = Own { disks: vec![(disk, directory.path().join("gone"))], ..own };
        let refused = erase(&path, &elsewhere, BOUND, true).expect_err("ours");
        assert!(refused.message.contains("pool 'pool' of this server"), "{refused}");
        let file = std::fs::File::open(&path).expect("the file");
        file.lock().expect("a lock");
        let refused = erase(&path, &nobody(), BOUND, true).expect_err("in use");
        assert!(refused.message.contains("locked by process"), "{refused}");
        assert_eq!(
            erase(&directory.path().join("none"), &nobody(), BOUND, true).expect_err("none").kind,
            ErrorKind::NotFound
        );
    }
}

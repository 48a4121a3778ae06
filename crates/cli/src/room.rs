//! Words on the space of pools and volumes: usable bytes beside raw ones, and the point from which thin
//! volumes have more promised than there is.

use api::model::{Pool, Volume};
use types::size::show_size;

/// Bytes that volumes with this many copies can hold.
pub fn usable_bytes(pool: &Pool, copies: u64) -> u64 {
    room_bytes(pool) / copies
}

/// Bytes that data may take of the pool, all copies counted.
fn room_bytes(pool: &Pool) -> u64 {
    pool.size_bytes - pool.reserve_bytes.min(pool.size_bytes)
}

/// Bytes of all volumes of the pool when they are full, all copies counted.
fn promised_bytes(pool: &Pool, volumes: &[Volume]) -> u64 {
    let own = volumes.iter().filter(|volume| volume.pool == pool.id);
    own.map(|volume| volume.size_bytes * u64::from(volume.copies)).sum()
}

/// Warns that the volumes of a pool have more promised than there is. `named`: the volume that was
/// made, or has grown; `grown_bytes`: by how much.
pub fn overcommitted(pool: &Pool, volumes: &[Volume], named: &str, grown_bytes: u64) -> Option<String> {
    let volume = volumes.iter().find(|volume| volume.name.eq_ignore_ascii_case(named))?;
    let (promised, room) = (promised_bytes(pool, volumes), room_bytes(pool));
    if promised <= room {
        return None;
    }
    let before = promised - (grown_bytes * u64::from(volume.copies)).min(promised);
    let since = if before <= room { "from now on" } else { "as before" };
    Some(format!(
        "{since}, the volumes of pool '{0}' may grow to {1} with all their copies, more than the {2} that the pool has: when \
         it is full, writes are refused. `cenote pool show {0}` shows the space left; health warns from 70 %",
        pool.name,
        show_size(promised),
        show_size(room)
    ))
}

/// Reports an empty volume's own use of space, if that is much of the volume.
pub fn taken_by_itself(volume: &Volume) -> Option<String> {
    let used = volume.used_bytes?;
    (used * 10 >= volume.size_bytes).then(|| {
        format!(
            "{} of its {} are taken by its own journal and metadata, which do not grow with its size as files do: a larger volume has more for files",
            show_size(used),
            show_size(volume.size_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool() -> Pool {
        serde_json::from_value(json!({
            "id": "01234567-89ab-cdef-0123-456789abcdef", "name": "tank", "health": "healthy", "disks": 3, "slab_bytes": 1 << 28,
            "size_bytes": 300, "reserve_bytes": 100, "reserve_disks": 1, "reserve_is_set": false,
        }))
        .expect("a pool")
    }

    fn volume(name: &str, size_bytes: u64, used_bytes: u64) -> Volume {
        serde_json::from_value(json!({
            "id": "11234567-89ab-cdef-0123-456789abcdef", "name": name, "pool": "01234567-89ab-cdef-0123-456789abcdef", "owner": null,
            "health": "healthy", "status": "ok", "resiliency": "two_way_mirror", "provisioning": "thin", "size_bytes": size_bytes,
            "used_bytes": used_bytes, "warn_at_percent": 90, "copies": 2, "min_copies": 1, "epoch": 1, "least_copies": 2, "holders": [],
        }))
        .expect("a volume")
    }

    #[test]
    fn usable_room_is_without_the_reserve_and_for_each_byte_once() {
        assert_eq!((usable_bytes(&pool(), 2), usable_bytes(&pool(), 3)), (100, 66));
    }

    #[test]
    fn a_promise_beyond_the_pool_is_told_when_it_begins() {
        let fits = [volume("a", 60, 0), volume("b", 40, 0)];
        assert_eq!(overcommitted(&pool(), &fits, "b", 40), None);
        let beyond = [volume("a", 60, 0), volume("b", 41, 0)];
        let told = overcommitted(&pool(), &beyond, "b", 41).expect("it is told");
        assert!(told.starts_with("from now on") && told.contains("'tank'"), "{told}");
        let further = [volume("a", 110, 0), volume("b", 41, 0)];
        assert!(overcommitted(&pool(), &further, "b", 1).expect("it is told").starts_with("as before"));
    }

    #[test]
    fn a_small_volume_that_takes_half_of_itself_says_so() {
        assert!(taken_by_itself(&volume("a", 256 << 20, 128 << 20)).expect("it is told").contains("128 MiB"));
        assert_eq!(taken_by_itself(&volume("a", 100 << 30, 1 << 30)), None);
    }
}

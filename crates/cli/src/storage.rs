//! `cenote disk`, `cenote pool`, `cenote volume`.

use crate::args;
use crate::jobs::{job_of, json_of_ended, wait, watch};
use crate::output::{Align, Column, confirm, health, json, pairs, say, table, word};
use crate::printable::{eprintln, print, println};
use crate::room;
use api::ErrorKind;
use api::model::{DamagedRange, Disk, DiskCounters, JobState, Pool, Provisioning, Volume, VolumeDamage};
use api::requests::{
    AddDisk, CheckVolume, CreatePool, CreateVolume, Created, DeletedPool, EraseDisk, ErasedDisk, FaultDomain,
    ForgetPromises, ForgottenPromises, ImportPool, ImportedPool, LocateDisk, LocatedDisk, Replaced, SetPool,
    SetVolume, Started,
};
use api_client::{Client, Failure, escaped};
use std::path::{Path, PathBuf};
use types::size::show_size;
use types::{DiskId, PoolId};

pub fn disk(client: &Client, as_json: bool, command: args::Disk) -> Result<(), Failure> {
    match command {
        args::Disk::List => {
            let disks: Vec<Disk> = client.get_whole("/disks", "disks there are shown as last recorded")?;
            if as_json {
                return json(&disks);
            }
            list_disks(&disks, &client.get::<Vec<Pool>>("/pools")?);
        }
        args::Disk::Add { path, pool, create, place } => {
            let request = AddDisk {
                path: whole_path(&path)?,
                create_size_bytes: create,
                pool,
                fault_domain: FaultDomain { rack: place.rack, node: place.node, enclosure: place.enclosure },
            };
            let added: Created = client.post("/disks", &request)?;
            if as_json {
                return json(&added);
            }
            // Without a name there must be one pool.
            let pool = request.pool.or_else(|| {
                let pools = client.get::<Vec<Pool>>("/pools").ok()?;
                pools.into_iter().map(|pool| pool.name).next()
            });
            let pool = pool.unwrap_or_else(|| "POOL".to_owned());
            println!("disk {} was added; `cenote pool rebalance {pool}` moves data to it", added.id);
        }
        args::Disk::Retire { disk, undo: true, .. } => {
            let disk = disk_id(client, &disk)?;
            client.delete(&format!("/disks/{disk}/retire"))?;
            say(as_json, format!("disk {disk} may be given data again"))?;
        }
        args::Disk::Replace { old, path, create, place, watch: watching } => {
            let old = disk_id(client, &old)?;
            let request = AddDisk {
                path: whole_path(&path)?,
                create_size_bytes: create,
                pool: None,
                fault_domain: FaultDomain { rack: place.rack, node: place.node, enclosure: place.enclosure },
            };
            let replaced: Replaced = client.post(&format!("/disks/{old}/replace"), &request)?;
            if as_json && !watching.watch {
                return json(&replaced);
            }
            if !as_json {
                println!("disk {} was added; {old} leaves the pool when everything is off it", replaced.disk);
            }
            follow(client, as_json, &Started { job: replaced.job }, watching.watch)?;
        }
        args::Disk::Locate { disk, off } => locate(client, as_json, &disk, off)?,
        args::Disk::Retire { disk, watch: watching, .. } => {
            let disk = disk_id(client, &disk)?;
            let started: Started = client.post(&format!("/disks/{disk}/retire"), &())?;
            follow(client, as_json, &started, watching.watch)?;
        }
        args::Disk::Acknowledge { disk } => {
            let disk = disk_id(client, &disk)?;
            let () = client.post(&format!("/disks/{disk}/acknowledge"), &())?;
            let message =
                format!("the errors of disk {disk} are acknowledged; health reports only later ones");
            say(as_json, message)?;
        }
        args::Disk::ForgetPromises { disk, yes } => forget_promises(client, as_json, &disk, yes.as_deref())?,
        args::Disk::Erase { path, yes } => erase(client, as_json, &path, yes.as_deref())?,
        args::Disk::Inspect { path } => return crate::inspect::disk(&path, as_json),
    }
    Ok(())
}

fn locate(client: &Client, as_json: bool, disk: &str, off: bool) -> Result<(), Failure> {
    let disk = disk_id(client, disk)?;
    let found: LocatedDisk = client.post(&format!("/disks/{disk}/locate"), &LocateDisk { on: !off })?;
    if as_json {
        return json(&found);
    }
    let none = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    pairs(&[
        ("path", found.path.clone()),
        ("device", none(&found.device)),
        ("serial", none(&found.serial)),
        ("slot", none(&found.slot)),
        ("LED", if found.led { if off { "off" } else { "on" }.to_owned() } else { found.message.clone() }),
    ]);
    Ok(())
}

fn forget_promises(client: &Client, as_json: bool, named: &str, yes: Option<&str>) -> Result<(), Failure> {
    let disk = disk_id(client, named)?;
    let (path, mut request) = (format!("/disks/{disk}/forget-promises"), ForgetPromises::default());
    // Without the confirmation the server only checks.
    let refused = match client.post::<ForgottenPromises>(&path, &request) {
        Ok(forgotten) => return json(&forgotten),
        Err(refused) => refused,
    };
    if refused.kind != Some(ErrorKind::ConfirmationNeeded) {
        return Err(refused);
    }
    confirm(&refused.message, named, yes)?;
    request.confirm = Some(disk.to_string());
    let forgotten: ForgottenPromises = client.post(&path, &request)?;
    if as_json {
        return json(&forgotten);
    }
    println!("what disk {disk} had promised to {} is forgotten", forgotten.volumes.join(", "));
    Ok(())
}

fn erase(client: &Client, as_json: bool, path: &Path, yes: Option<&str>) -> Result<(), Failure> {
    let mut request = EraseDisk { path: whole_path(path)?, confirm: None };
    // Without the confirmation the server only checks. The path as it was typed confirms the whole path.
    let refused = match client.post::<ErasedDisk>("/disk-erasures", &request) {
        Ok(erased) => return json(&erased),
        Err(refused) => refused,
    };
    if refused.kind != Some(ErrorKind::ConfirmationNeeded) {
        return Err(refused);
    }
    let named = path.display().to_string();
    let given = yes.filter(|given| **given == request.path).map(|_| named.as_str()).or(yes);
    confirm(&refused.message, &named, given)?;
    request.confirm = Some(request.path.clone());
    let erased: ErasedDisk = client.post("/disk-erasures", &request)?;
    if as_json {
        return json(&erased);
    }
    println!("{} holds nothing any more; it was {}", erased.path, erased.held);
    Ok(())
}

/// The disk that is meant by its ID, the beginning of it, or its path.
fn disk_id(client: &Client, given: &str) -> Result<DiskId, Failure> {
    if let Ok(id) = given.parse() {
        return Ok(id);
    }
    let disks: Vec<Disk> = client.get("/disks")?;
    let whole = whole_path(Path::new(given)).unwrap_or_default();
    let same_path = |disk: &&Disk| disk.path == given || disk.path == whole;
    if let Some(disk) = disks.iter().find(same_path) {
        return Ok(disk.id);
    }
    let mut alike = disks.iter().filter(|disk| given.len() >= 4 && disk.id.to_string().starts_with(given));
    match (alike.next(), alike.next()) {
        (Some(disk), None) => Ok(disk.id),
        (Some(_), Some(_)) => Err(Failure::new(format!("several disks have IDs that begin with {given}"))),
        (None, _) => Err(Failure::new(format!(
            "there is no disk '{given}': give ID or path as `cenote disk list` shows them"
        ))),
    }
}

/// The name of a pool by its id.
fn pool_name(pools: &[Pool], id: Option<PoolId>) -> String {
    let found = pools.iter().find(|pool| Some(pool.id) == id);
    found.map_or_else(|| "-".to_owned(), |pool| pool.name.clone())
}

fn list_disks(disks: &[Disk], pools: &[Pool]) {
    let mut disks: Vec<&Disk> = disks.iter().collect();
    disks.sort_by(|one, other| one.path.cmp(&other.path));
    let columns = [
        Column("PATH", Align::Left),
        Column("POOL", Align::Left),
        Column("HEALTH", Align::Left),
        Column("STATUS", Align::Left),
        Column("USAGE", Align::Left),
        Column("SIZE", Align::Right),
        Column("ALLOCATED", Align::Right),
        Column("CORRUPT", Align::Right),
        Column("REPAIRED", Align::Right),
        Column("MEDIUM ERRORS", Align::Right),
        Column("LOST WRITES", Align::Right),
        Column("DEVICE", Align::Left),
        Column("FAULT DOMAIN", Align::Left),
        Column("ID", Align::Left),
    ];
    let rows = disks.iter().map(|disk| {
        vec![
            disk.path.clone(),
            pool_name(pools, disk.pool),
            word(disk.health),
            word(disk.status),
            word(disk.usage),
            show_size(disk.size_bytes),
            shown(disk.allocated_bytes),
            counted(disk, |counters| counters.corrupt_blocks),
            counted(disk, |counters| counters.repaired_blocks),
            counted(disk, |counters| counters.medium_errors),
            counted(disk, |counters| counters.lost_writes),
            show_device(disk),
            disk.fault_domain.clone(),
            disk.id.to_string(),
        ]
    });
    table(&columns, rows.collect(), "no disks; `cenote pool create NAME DISK...` makes a pool of some");
}

/// A size, or a dash if it is not known.
fn shown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), show_size)
}

/// A count of a disk, or a dash if it is not known.
fn counted(disk: &Disk, of: impl Fn(&DiskCounters) -> u64) -> String {
    disk.counters.as_ref().map_or_else(|| "-".to_owned(), |counters| of(counters).to_string())
}

/// Shows the device's own report in a few words; a dash if there is none.
fn show_device(disk: &Disk) -> String {
    let device = disk.device_health.unwrap_or_default();
    let words = [
        device.passed.map(|passed| if passed { "ok" } else { "FAILING" }.to_owned()),
        device.used_percent.map(|percent| format!("{percent}% used")),
        device.spare_percent.map(|percent| format!("{percent}% spare")),
        device.written_bytes.map(|bytes| format!("{} written", show_size(bytes))),
        device.media_errors.map(|errors| format!("{errors} media errors")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

pub fn pool(client: &Client, as_json: bool, command: args::Pool) -> Result<(), Failure> {
    match command {
        args::Pool::List => {
            let pools: Vec<Pool> =
                client.get_whole("/pools", "pools are shown without the figures of its disks")?;
            if as_json {
                return json(&pools);
            }
            list_pools(&pools);
        }
        args::Pool::Show { name } => return show_pool(client, as_json, &name),
        args::Pool::Set { name, reserve_disks } => {
            let () = client.patch(&format!("/pools/{}", escaped(&name)), &SetPool { reserve_disks })?;
            let disks = if reserve_disks == 1 { "disk" } else { "disks" };
            say(as_json, format!("pool '{name}' keeps the size of {reserve_disks} {disks} for repair"))?;
        }
        args::Pool::Create { name, disks, create, reserve_disks } => {
            let disk = |path: &PathBuf| {
                Ok(AddDisk {
                    path: whole_path(path)?,
                    create_size_bytes: create,
                    pool: None,
                    fault_domain: FaultDomain::default(),
                })
            };
            let disks = disks.iter().map(disk).collect::<Result<_, Failure>>()?;
            let made: Created =
                client.post("/pools", &CreatePool { name: name.clone(), disks, reserve_disks })?;
            if as_json {
                return json(&made);
            }
            println!("pool '{name}' was made ({}); `cenote volume create` makes a volume in it", made.id);
        }
        args::Pool::Delete { name, confirmation } => {
            delete_pool(client, as_json, &name, confirmation.yes.as_deref())?;
        }
        args::Pool::Export { name, yes } => {
            export_pool(client, as_json, &name, yes.as_deref())?;
        }
        args::Pool::Import { name, disks, search, rename, key, accept_missing, yes } => {
            let request = ImportPool {
                pool: name,
                disks: whole_paths(&disks)?,
                search: whole_paths(&search)?,
                rename,
                key_file: key.map(|path| whole_path(&path)).transpose()?,
                confirm: yes,
                accept_missing,
            };
            let imported: ImportedPool = client.post("/pool-imports", &request)?;
            if as_json {
                return json(&imported);
            }
            print!("{}", show_import(&imported));
        }
        args::Pool::Rebalance { name, watch: watching } => {
            let started: Started = client.post(&format!("/pools/{}/rebalance", escaped(&name)), &())?;
            follow(client, as_json, &started, watching.watch)?;
        }
    }
    Ok(())
}

fn list_pools(pools: &[Pool]) {
    let columns = [
        Column("NAME", Align::Left),
        Column("HEALTH", Align::Left),
        Column("DISKS", Align::Right),
        Column("SIZE", Align::Right),
        Column("ALLOCATED", Align::Right),
        Column("RESERVE", Align::Right),
        Column("SLAB", Align::Right),
        Column("USABLE, 2-WAY", Align::Right),
    ];
    let rows = pools.iter().map(|pool| {
        vec![
            pool.name.clone(),
            word(pool.health),
            pool.disks.to_string(),
            show_size(pool.size_bytes),
            shown(pool.allocated_bytes),
            show_size(pool.reserve_bytes),
            show_size(pool.slab_bytes),
            show_size(room::usable_bytes(pool, 2)),
        ]
    });
    table(&columns, rows.collect(), "no pools; `cenote pool create NAME DISK...` makes one");
}

fn show_pool(client: &Client, as_json: bool, name: &str) -> Result<(), Failure> {
    let pool = named(client.get::<Vec<Pool>>("/pools")?, "pool", name, |pool| &pool.name)?;
    if as_json {
        return json(&pool);
    }
    let mut disks: Vec<Disk> = client.get("/disks")?;
    disks.retain(|disk| disk.pool == Some(pool.id));
    pairs(&[
        ("name", pool.name.clone()),
        ("id", pool.id.to_string()),
        ("health", health(pool.health)),
        ("size", format!("{}, of all disks", show_size(pool.size_bytes))),
        ("allocated", format!("{}, all copies counted", shown(pool.allocated_bytes))),
        (
            "usable",
            format!(
                "{} in two-way mirrors, or {} in three-way ones: the size without the reserve, by copies",
                show_size(room::usable_bytes(&pool, 2)),
                show_size(room::usable_bytes(&pool, 3))
            ),
        ),
        (
            "reserve for repair",
            format!(
                "{} ({} disk{})",
                show_size(pool.reserve_bytes),
                pool.reserve_disks,
                if pool.reserve_disks == 1 { "" } else { "s" }
            ),
        ),
        ("slab", show_size(pool.slab_bytes)),
    ]);
    println!();
    list_disks(&disks, std::slice::from_ref(&pool));
    Ok(())
}

fn delete_pool(client: &Client, as_json: bool, name: &str, yes: Option<&str>) -> Result<(), Failure> {
    let pool = named(client.get::<Vec<Pool>>("/pools")?, "pool", name, |pool| &pool.name)?;
    let what = format!("this deletes pool '{}' and makes its {} disks hold nothing", pool.name, pool.disks);
    confirm(&what, &pool.name, yes)?;
    let name = escaped(&pool.name);
    let deleted: DeletedPool = client.delete_with_answer(&format!("/pools/{name}?confirm={name}"))?;
    if as_json {
        return json(&deleted);
    }
    println!("pool '{}' is gone", deleted.name);
    for disk in &deleted.labelled_disks {
        println!("{disk} still has its label: `cenote disk erase {disk}` when it is there");
    }
    Ok(())
}

fn export_pool(client: &Client, as_json: bool, name: &str, yes: Option<&str>) -> Result<(), Failure> {
    let pool = named(client.get::<Vec<Pool>>("/pools")?, "pool", name, |pool| &pool.name)?;
    let what = format!("this removes pool '{}' with its volumes and shares from this server", pool.name);
    confirm(&what, &pool.name, yes)?;
    let name = escaped(&pool.name);
    let () = client.post(&format!("/pools/{name}/export?confirm={name}"), &())?;
    let message = format!(
        "pool '{}' was exported; `cenote pool import` brings it back, here or on another server. Its users' passwords \
         come along only with this server's key file: copy secret.key of the data directory, and give it with --key",
        pool.name
    );
    say(as_json, message)
}

/// Reports the results of an import, and the steps left.
pub fn show_import(imported: &ImportedPool) -> String {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut text = format!("pool '{}' was imported\n", imported.name);
    let mut line = |what: &str, names: &[String]| text += &format!("  {what:<9} {}\n", list(names));
    line("volumes", &imported.volumes);
    line("shares", &imported.shares);
    line("users", &imported.users);
    text += &format!("administrators of this server are now: {}\n", list(&imported.administrators));
    for disk in &imported.missing_disks {
        text += &format!("missing disk: {disk}; it is brought up to date when it comes back\n");
    }
    for volume in &imported.not_served {
        text += &format!("not served: {volume}\n");
    }
    for user in &imported.passwords_lost {
        text +=
            &format!("the password of '{user}' did not come back: cenote user set {user} --password NEW\n");
    }
    for note in &imported.notes {
        text += &format!("note: {note}\n");
    }
    text
}

pub fn volume(client: &Client, as_json: bool, command: args::Volume) -> Result<(), Failure> {
    match command {
        args::Volume::List => {
            let volumes: Vec<Volume> =
                client.get_whole("/volumes", "volumes there are shown as last recorded")?;
            if as_json {
                return json(&volumes);
            }
            list_volumes(&volumes, &client.get::<Vec<Pool>>("/pools")?);
        }
        args::Volume::Show { name } => {
            let volume = find_volume(client, &name)?;
            if as_json {
                return json(&volume);
            }
            show_volume(&volume);
        }
        args::Volume::Create { name, size, pool, resiliency, fixed, warn_at } => {
            let request = CreateVolume {
                name: name.clone(),
                pool,
                resiliency: resiliency.into(),
                provisioning: if fixed { Provisioning::Fixed } else { Provisioning::Thin },
                size_bytes: size,
                warn_at_percent: warn_at,
            };
            let made: Created = client.post("/volumes", &request)?;
            if as_json {
                return json(&made);
            }
            println!(
                "volume '{name}' was made ({}); `cenote share create NAME --volume {name}` shares it",
                made.id
            );
            tell_of_room(client, as_json, &name, size)?;
        }
        args::Volume::Resize { name, size } => {
            let before = find_volume(client, &name)?.size_bytes;
            let request = SetVolume { size_bytes: Some(size), warn_at_percent: None };
            let () = client.patch(&format!("/volumes/{}", escaped(&name)), &request)?;
            say(as_json, format!("volume '{name}' has {}", show_size(size)))?;
            tell_of_room(client, as_json, &name, size - before.min(size))?;
        }
        args::Volume::Set { name, warn_at } => {
            let request = SetVolume { size_bytes: None, warn_at_percent: Some(warn_at) };
            let () = client.patch(&format!("/volumes/{}", escaped(&name)), &request)?;
            say(as_json, format!("health warns of volume '{name}' when {warn_at} % of it are used"))?;
        }
        args::Volume::Delete { name, confirmation } => {
            delete_volume(client, as_json, &find_volume(client, &name)?, confirmation.yes.as_deref())?;
        }
        args::Volume::Damage { name } => {
            let damage: VolumeDamage = client.get(&format!("/volumes/{}/damage", escaped(&name)))?;
            if as_json {
                return json(&damage);
            }
            show_damage(&damage);
        }
        args::Volume::Check { name, repair: false, watch: watching, .. } => {
            let path = format!("/volumes/{}/check", escaped(&name));
            let started: Started = client.post(&path, &CheckVolume::default())?;
            follow(client, as_json, &started, watching.watch)?;
        }
        args::Volume::Check { name, repair: true, watch: watching, yes } => {
            let volume = find_volume(client, &name)?;
            repair_volume(client, as_json, &volume, watching.watch, yes.as_deref())?;
        }
    }
    Ok(())
}

/// Warns of surprises of a volume that has grown by `grown_bytes`.
fn tell_of_room(client: &Client, as_json: bool, name: &str, grown_bytes: u64) -> Result<(), Failure> {
    if as_json {
        return Ok(());
    }
    let volumes: Vec<Volume> = client.get("/volumes")?;
    let pools: Vec<Pool> = client.get("/pools")?;
    let Some(volume) = volumes.iter().find(|volume| volume.name.eq_ignore_ascii_case(name)) else {
        return Ok(());
    };
    let pool = pools.iter().find(|pool| pool.id == volume.pool);
    let promised = pool.and_then(|pool| room::overcommitted(pool, &volumes, name, grown_bytes));
    for note in room::taken_by_itself(volume).into_iter().chain(promised) {
        eprintln!("cenote: {note}");
    }
    Ok(())
}

fn list_volumes(volumes: &[Volume], pools: &[Pool]) {
    let columns = [
        Column("NAME", Align::Left),
        Column("POOL", Align::Left),
        Column("HEALTH", Align::Left),
        Column("STATUS", Align::Left),
        Column("RESILIENCY", Align::Left),
        Column("COPIES", Align::Left),
        Column("SIZE", Align::Right),
        Column("USED", Align::Right),
        Column("AVAILABLE", Align::Right),
        Column("FOOTPRINT", Align::Right),
    ];
    let has_owners = volumes.iter().any(|volume| volume.owner.is_some());
    let columns: Vec<Column> =
        columns.into_iter().chain(has_owners.then_some(Column("SERVER", Align::Left))).collect();
    let rows = volumes.iter().map(|volume| {
        let mut row = vec![
            volume.name.clone(),
            pool_name(pools, Some(volume.pool)),
            word(volume.health),
            word(volume.status),
            word(volume.resiliency),
            show_copies(volume),
            show_size(volume.size_bytes),
            shown(volume.used_bytes),
            shown(volume.available_bytes),
            shown(volume.footprint_bytes),
        ];
        if has_owners {
            row.push(volume.owner.clone().unwrap_or_else(|| "-".into()));
        }
        row
    });
    table(&columns, rows.collect(), "no volumes; `cenote volume create NAME --size SIZE` makes one");
}

fn delete_volume(client: &Client, as_json: bool, volume: &Volume, yes: Option<&str>) -> Result<(), Failure> {
    let what =
        format!("this destroys volume '{}' and the {} of data on it", volume.name, shown(volume.used_bytes));
    confirm(&what, &volume.name, yes)?;
    let name = escaped(&volume.name);
    client.delete(&format!("/volumes/{name}?confirm={name}"))?;
    say(as_json, format!("volume '{}' is gone", volume.name))
}

fn show_damage(damage: &VolumeDamage) {
    let columns = [Column("FILE", Align::Left), Column("AT", Align::Right), Column("LENGTH", Align::Right)];
    let row = |path: &str, range: &DamagedRange| {
        vec![path.to_owned(), range.offset_bytes.to_string(), range.length_bytes.to_string()]
    };
    let rows = damage.files.iter().flat_map(|file| file.ranges.iter().map(|range| row(&file.path, range)));
    table(&columns, rows.collect(), "no file is damaged, as far as is known");
    if damage.other_bytes > 0 {
        println!("{} damaged bytes belong to no file", damage.other_bytes);
    }
    if damage.unreadable_pages > 0 {
        println!(
            "{} pages of the volume's tree of files are damaged on all copies: the files and directories that they hold cannot be named. \
             Copy all that can be read to another volume, and restore the rest there",
            damage.unreadable_pages
        );
    }
    if damage.truncated {
        println!("there is more: these are the first");
    }
    if !damage.files.is_empty() {
        println!(
            "Reads of these bytes fail, everything else is served: write them again, or restore the files."
        );
    }
}

/// Checks first, announces the repair, asks, and repairs.
fn repair_volume(
    client: &Client,
    as_json: bool,
    volume: &Volume,
    watching: bool,
    yes: Option<&str>,
) -> Result<(), Failure> {
    let path = format!("/volumes/{}/check", escaped(&volume.name));
    let started: Started = client.post(&path, &CheckVolume::default())?;
    // A check that finds damage fails: that is why somebody repairs.
    let checked =
        if as_json { wait(client, Some(started.job)).map(drop) } else { watch(client, Some(started.job)) };
    let found = job_of(client, started.job).map_err(|gone| checked.err().unwrap_or(gone))?;
    match found.state {
        JobState::Completed => {
            return say(as_json, format!("nothing to repair: {}", found.message));
        }
        JobState::Failed => {}
        _ => return Err(Failure::new(format!("the check did not end: {}", found.message))),
    }
    let what = format!(
        "the check of volume '{}' found: {}\nThe repair rewrites damaged and older copies of these blocks from the newest \
         intact one. If nothing tells which copy is newer, it takes that of the disk with the lowest ID, and the others are \
         lost. It changes no structures",
        volume.name, found.message
    );
    if !as_json {
        println!("{what}");
    }
    confirm(&what, &volume.name, yes)?;
    let request = CheckVolume { repair: true, confirm: Some(volume.name.clone()) };
    let started: Started = client.post(&path, &request)?;
    follow(client, as_json, &started, watching)
}

fn show_volume(volume: &Volume) {
    pairs(&[
        ("name", volume.name.clone()),
        ("id", volume.id.to_string()),
        ("health", health(volume.health)),
        ("status", word(volume.status)),
        ("resiliency", word(volume.resiliency)),
        ("provisioning", word(volume.provisioning)),
        ("copies in sync", show_copies(volume)),
        ("copies needed to write", volume.min_copies.to_string()),
        ("epoch", volume.epoch.to_string()),
        ("to be copied", shown(volume.stale_bytes)),
        ("size", show_size(volume.size_bytes)),
        ("used", format!("{}, by files and the volume's own journal and metadata", shown(volume.used_bytes))),
        (
            "available",
            format!(
                "{}, for files: what is left of the size, or less if the pool has no room for more copies",
                shown(volume.available_bytes)
            ),
        ),
        ("footprint", format!("{} of the pool, all copies counted", shown(volume.footprint_bytes))),
        ("health warns at", format!("{} % used", volume.warn_at_percent)),
    ]);
}

/// Nobody knows how many copies of an unserved volume can be used.
fn show_copies(volume: &Volume) -> String {
    match volume.in_sync_copies {
        None => format!("- of {}", volume.copies),
        Some(copies) => format!("{copies} of {}", volume.copies),
    }
}

fn find_volume(client: &Client, name: &str) -> Result<Volume, Failure> {
    named(client.get::<Vec<Volume>>("/volumes")?, "volume", name, |volume| &volume.name)
}

fn named<T>(all: Vec<T>, kind: &str, name: &str, name_of: impl Fn(&T) -> &str) -> Result<T, Failure> {
    all.into_iter().find(|one| name_of(one).to_lowercase() == name.to_lowercase()).ok_or_else(|| {
        Failure::new(format!("there is no {kind} '{name}'; `cenote {kind} list` shows those there are"))
    })
}

/// Makes a path absolute: the API's server may have another working directory.
fn whole_path(path: &Path) -> Result<String, Failure> {
    let whole = std::path::absolute(path)
        .map_err(|error| Failure::new(format!("'{}' is not a path: {error}", path.display())))?;
    whole
        .into_os_string()
        .into_string()
        .map_err(|path| Failure::new(format!("'{}' is not UTF-8: rename it", path.display())))
}

fn whole_paths(paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
    paths.iter().map(|path| whole_path(path)).collect()
}

/// Shows the job's progress, or how to see it. As JSON: how the job ended, or that it was started.
fn follow(client: &Client, as_json: bool, started: &Started, watching: bool) -> Result<(), Failure> {
    match (as_json, watching) {
        (true, true) => return json_of_ended(client, started.job),
        (true, false) => return json(started),
        (false, _) => {}
    }
    if watching {
        return watch(client, Some(started.job));
    }
    println!("job {} has begun; `cenote job watch {}` shows its progress", started.job, started.job);
    Ok(())
}

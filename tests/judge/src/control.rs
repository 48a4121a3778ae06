//! The control socket: a command a line, answered by a line.

use crate::disk::{Action, Fault, Operation};
use crate::random::Random;
use crate::served::{Mood, Served};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// DISK is a disk's name; offsets and lengths are in bytes; TIMES 0 means until `clear`.
pub const HELP: &str = "\
fail DISK read|write|flush|discard|any OFFSET BYTES TIMES ERRNO
lose DISK OFFSET BYTES TIMES             writes are answered and not done
misdirect DISK OFFSET BYTES TIMES BY     writes are done BY bytes further on instead
tear DISK OFFSET BYTES TIMES             half of a write is done
unreadable DISK OFFSET BYTES             reads fail until the block is written
rot DISK OFFSET BYTES SEED               flips a bit in each block
wipe DISK OFFSET BYTES                   the range holds zeroes
slow DISK MS | hang DISK | gone DISK
clear DISK                               ends faults and moods; what was damaged stays so
cut DISK SEED                            a power cut: what no flush covered is lost, kept or torn
snapshot DISK | rollback DISK            back to the snapshot
pick DISK COUNT SEED OFFSET BYTES        offsets of blocks that hold something
recent DISK COUNT SEED                   offsets of blocks that were written last
hits DISK                                how many operations met a fault";

/// Answers connections, one after the other, for ever.
pub fn serve(listener: &UnixListener, disks: &[Arc<Served>]) {
    for connection in listener.incoming().flatten() {
        // A client that has closed its side gets no answer.
        let _ = answer_lines(&connection, disks);
    }
}

fn answer_lines(connection: &UnixStream, disks: &[Arc<Served>]) -> std::io::Result<()> {
    for line in BufReader::new(connection).lines() {
        let line = line?;
        let answer = match execute(&line, disks) {
            Some(Ok(answer)) => format!("ok {answer}"),
            Some(Err(reason)) => format!("error: {reason}"),
            None => format!("error: not a command: {line}"),
        };
        let mut to = connection;
        writeln!(to, "{}", answer.trim_end())?;
    }
    Ok(())
}

/// `None` where the line is not one of the commands.
fn execute(line: &str, disks: &[Arc<Served>]) -> Option<Result<String, String>> {
    let mut words = line.split_ascii_whitespace();
    let (command, name) = (words.next()?, words.next()?);
    let Some(disk) = disks.iter().find(|disk| disk.name == name) else {
        return Some(Err(format!("no disk {name}")));
    };
    let first = if command == "fail" { Some(words.next()?) } else { None };
    let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let inject = |operation, bytes, times: u64, action| {
        let times = (times > 0).then_some(times);
        disk.with_disk(|disk| disk.inject(Fault { operation, bytes, times, action }));
    };
    match (command, &numbers[..]) {
        ("fail", &[offset, len_bytes, times, errno]) => {
            inject(operation(first?)?, range(offset, len_bytes), times, Action::Fail(errno as i32));
        }
        ("lose", &[offset, len_bytes, times]) => {
            inject(Some(Operation::Write), range(offset, len_bytes), times, Action::Lose);
        }
        ("misdirect", &[offset, len_bytes, times, by_bytes]) => {
            inject(Some(Operation::Write), range(offset, len_bytes), times, Action::Misdirect(by_bytes));
        }
        ("tear", &[offset, len_bytes, times]) => {
            inject(Some(Operation::Write), range(offset, len_bytes), times, Action::Tear);
        }
        ("unreadable", &[offset, len_bytes]) => {
            disk.with_disk(|disk| disk.make_unreadable(range(offset, len_bytes)));
        }
        ("rot", &[offset, len_bytes, seed]) => {
            disk.with_disk(|disk| disk.rot(range(offset, len_bytes), &mut Random::new(seed)));
        }
        ("wipe", &[offset, len_bytes]) => disk.with_disk(|disk| disk.wipe(range(offset, len_bytes))),
        ("slow", &[ms]) => disk.become_(Mood::Slow(Duration::from_millis(ms))),
        ("hang", []) => disk.become_(Mood::Hanging),
        ("gone", []) => disk.become_(Mood::Gone),
        ("clear", []) => {
            disk.with_disk(|disk| disk.clear());
            disk.become_(Mood::Answering);
        }
        ("cut", &[seed]) => disk.with_disk(|disk| disk.cut_power(&mut Random::new(seed))),
        ("snapshot", []) => disk.with_disk(|disk| disk.keep_image()),
        ("rollback", []) => {
            if !disk.with_disk(|disk| disk.go_back()) {
                return Some(Err("no snapshot".to_owned()));
            }
        }
        ("pick", &[count, seed, offset, len_bytes]) => {
            let bytes = range(offset, len_bytes);
            let picked = disk.with_disk(|disk| disk.pick(count as usize, bytes, &mut Random::new(seed)));
            return Some(Ok(listed(&picked)));
        }
        ("recent", &[count, seed]) => {
            let picked = disk.with_disk(|disk| disk.pick_recent(count as usize, &mut Random::new(seed)));
            return Some(Ok(listed(&picked)));
        }
        ("hits", []) => return Some(Ok(disk.with_disk(|disk| disk.hits()).to_string())),
        _ => return None,
    }
    Some(Ok(String::new()))
}

fn range(offset: u64, len_bytes: u64) -> Range<u64> {
    offset..offset.saturating_add(len_bytes)
}

fn operation(word: &str) -> Option<Option<Operation>> {
    Some(match word {
        "read" => Some(Operation::Read),
        "write" => Some(Operation::Write),
        "flush" => Some(Operation::Flush),
        "discard" => Some(Operation::Discard),
        "any" => None,
        _ => return None,
    })
}

fn listed(offsets: &[u64]) -> String {
    offsets.iter().fold(String::new(), |mut list, offset| {
        // To a string, which takes everything.
        let _ = write!(list, "{offset} ");
        list
    })
}

//! Counts the cost of one message: each kind of request at its largest size with its worst content, in instructions.
//!
//! `complexity [--full] [CASE ...]` runs itself under callgrind and holds each turn of the server's loop against
//! [`INSTRUCTIONS_MAX`]. Prints `ok` or `not ok` a case, and last `N passed, N failed`. Each case has a server of its own; all
//! content is generated from fixed seeds, so that the same build gives the same counts.

#[path = "complexity/bodies.rs"]
mod bodies;
#[path = "complexity/cases.rs"]
mod cases;

use cases::{CASES, Case};
use rawserver::{Client, User, World, status};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use sys::Buf;

/// The promise is 50 ms of one processor. At some two to three instructions a nanosecond, as the loop has them, these are 100 to 150
/// million.
const INSTRUCTIONS_MAX: u64 = 100_000_000;
/// Turns of one message before it counts as endless.
const TURNS_MAX: usize = 100_000;
/// Turns of a message that are counted each on its own; later ones together, [`TURNS_TOGETHER`] at a
/// time, as writing the counts down takes longer than the turns. A bound on their sum holds for each.
const TURNS_ALONE: usize = 16;
const TURNS_TOGETHER: usize = 50;
/// Runs the case that follows and reports each turn. For callgrind; the option is not for people.
const UNDER_CALLGRIND: &str = "--under-callgrind";
const TURN_LINE: &str = "turn";
const STATUS_LINE: &str = "status";

/// A case's server, with a user logged on; messages given to [`Bench::measure`] are counted.
struct Bench {
    world: World,
    client: Client,
}

/// Has callgrind write down what it has counted since the last time; does nothing without it. By one of Valgrind's client requests
/// (valgrind.h), since its options that name a function dump nothing when collecting begins at that function.
fn dump_counts() {
    const DUMP_STATS: u64 = 0x4354_0000;
    let request = [DUMP_STATS, 0, 0, 0, 0, 0];
    // SAFETY: the sequence rotates RDI by 128 bits in all and exchanges RBX with itself, which changes nothing. Valgrind, when it
    // runs this program, reads `request`, which lives until then, and writes RDX.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0_u64 => _,
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    panic!("{request:?} is known for x86-64 only");
}

/// The counted part: callgrind collects inside of this function only.
#[inline(never)]
fn measured_turn(world: &mut World, message: Option<(smb_server::ConnectionId, Buf)>) -> bool {
    std::hint::black_box(match message {
        Some((connection, message)) => world.begin(connection, message),
        None => world.turn(),
    })
}

impl Bench {
    fn new() -> Self {
        let mut world = World::new();
        let client = Client::ready(&mut world, User::Ana, "both");
        Self { world, client }
    }

    /// Counts one message, turn after turn until nothing is left to do, and forgets the answers.
    fn measure_at(&mut self, connection: smb_server::ConnectionId, message: Vec<u8>) {
        assert!(
            self.world.takes(connection, message.len()),
            "{} bytes are more than is received",
            message.len()
        );
        let mut next = Some((connection, Buf::from(&message[..])));
        for turn in 1..=TURNS_MAX {
            let goes_on = measured_turn(&mut self.world, next.take());
            if turn <= TURNS_ALONE || turn % TURNS_TOGETHER == 0 || !goes_on {
                dump_counts();
                println!("{TURN_LINE} {turn}");
            }
            if !goes_on {
                while let Some(answer) = self.world.sent(connection) {
                    if let Some(status) = status(&answer) {
                        println!("{STATUS_LINE} {:#x}", status.0);
                    }
                }
                return;
            }
        }
        panic!("a message does not come to an end");
    }

    fn measure(&mut self, message: Vec<u8>) {
        self.measure_at(self.client.connection, message);
    }
}

/// Result of a case.
struct Counted {
    /// Instructions of the turns.
    counts: Vec<u64>,
    /// Statuses of the first answer of each message, each once: shows whether it was worked on or refused.
    statuses: BTreeSet<String>,
}

/// Runs a case under callgrind.
fn count(case: &Case) -> Result<Counted, String> {
    let folder = std::env::temp_dir().join(format!("complexity-{}-{}", std::process::id(), case.name));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let counted = count_in(case, &folder);
    // Leftovers are found in the folder for temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    counted
}

fn count_in(case: &Case, folder: &Path) -> Result<Counted, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured_turn*"])
        .arg(format!("--callgrind-out-file={}/out", folder.display()))
        .arg(program)
        .args([UNDER_CALLGRIND, case.name])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = text.lines().rev().take(6).collect();
        return Err(end.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    let told = String::from_utf8_lossy(&output.stdout);
    let dumps = told.lines().filter(|line| line.starts_with(TURN_LINE)).count();
    // Callgrind numbers its dumps from 1; the one at the program's end has no number.
    let counts =
        (1..=dumps).map(|dump| total_of(&folder.join(format!("out.{dump}")))).collect::<Result<_, _>>()?;
    let statuses =
        told.lines().filter_map(|line| line.strip_prefix(STATUS_LINE)).map(|it| it.trim().to_owned());
    Ok(Counted { counts, statuses: statuses.collect() })
}

/// The `totals:` of one dump.
fn total_of(file: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
    line.and_then(|number| number.trim().parse().ok()).ok_or_else(|| format!("{}: no totals", file.display()))
}

/// Runs a case and prints its line; whether it passed.
fn judge(case: &Case) -> bool {
    let Counted { counts, statuses } = match count(case) {
        Ok(counted) if !counted.counts.is_empty() => counted,
        Ok(_) => {
            println!("not ok  {}: nothing was counted", case.name);
            return false;
        }
        Err(why) => {
            println!("not ok  {}: {why}", case.name);
            return false;
        }
    };
    let most = counts.iter().copied().max().unwrap_or(0);
    let passed = most <= INSTRUCTIONS_MAX;
    println!(
        "{}{}: at most {:.1} million instructions in a turn, {:.1} in all; answered {}",
        if passed { "ok      " } else { "not ok  " },
        case.name,
        most as f64 / 1e6,
        counts.iter().sum::<u64>() as f64 / 1e6,
        if statuses.is_empty() { "by nothing".to_owned() } else { Vec::from_iter(statuses).join(", ") }
    );
    passed
}

/// Judges the cases, as many at a time as there are processors; returns the passed and the failed.
/// Counts are those of the program alone: others beside it do not change them.
fn judge_all(cases: &[&Case]) -> (usize, usize) {
    let next = AtomicUsize::new(0);
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZeroUsize::get) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    passed.fetch_add(usize::from(judge(case)), Ordering::Relaxed);
                }
            });
        }
    });
    let passed = passed.into_inner();
    (passed, cases.len() - passed)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [UNDER_CALLGRIND, name] = words[..] {
        let case = CASES.iter().find(|case| case.name == name).expect("a case of that name");
        (case.run)(&mut Bench::new());
        return ExitCode::SUCCESS;
    }
    let full = words.contains(&"--full");
    let named: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with("--")).collect();
    let chosen: Vec<&Case> = CASES
        .iter()
        .filter(|case| if named.is_empty() { full || !case.full_only } else { named.contains(&case.name) })
        .collect();
    let (passed, failed) = judge_all(&chosen);
    println!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

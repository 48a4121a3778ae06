//! The program as a user meets it: exit statuses, messages, output.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn diskspd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diskspd")).args(arguments).output().expect("the program starts")
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Runs that are refused: nothing on stdout, the status, and the message.
fn refused(arguments: &[&str], status: i32, message: &str) {
    let output = diskspd(arguments);
    let (out, error) = texts(&output);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
    assert!(error.contains(message), "{arguments:?}: {error}");
    assert_eq!(out, "", "{arguments:?}: no report that looks whole");
}

#[test]
fn help_is_no_failure_and_no_arguments_are() {
    let help = diskspd(&["-?"]);
    assert_eq!(help.status.code(), Some(0));
    let (out, _) = texts(&help);
    assert!(
        out.contains("Usage: diskspd [options] target1 [ target2 [ target3 ...] ]\nversion 2.2.0 (2024/6/3)")
    );
    let none = diskspd(&[]);
    assert_eq!((none.status.code(), texts(&none).0), (Some(3), out));
}

#[test]
fn wrong_command_lines_end_with_three() {
    refused(&["-Q", "file"], 3, "ERROR: invalid option: '-Q'");
    refused(&["-b0", "file"], 3, "ERROR: invalid block size passed to -b");
    refused(&["-w", "file"], 3, "ERROR: no write ratio passed to -w");
    refused(&["-d1"], 3, "ERROR: need to provide at least one filename");
    refused(&["file", "-d1"], 3, "ERROR: parameters (-d1) must come before targets on the command line");
    refused(&["-Sum", "file"], 3, "conflicts");
    refused(&["-o1", "-D1", "-d100000", "file"], 3, "too many IOPS intervals");
    refused(&["-X/nonexistent", "file"], 3, "ERROR: XML profile '/nonexistent' cannot be read");
}

#[test]
fn targets_that_cannot_be_used_end_with_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let missing = path("missing");
    refused(&["-d1", &missing], 1, &format!("Error opening file: {missing} [2]"));
    refused(&["-d1", &path("")], 1, "ERROR: target size could not be determined");
    let small = path("small");
    fs::write(&small, [0; 1000]).expect("is written");
    refused(&["-d1", &small], 1, "The file is too small. File: '");
    refused(&["-d1", "-b512", "-B1K", &small], 1, "relative thread 0: file size: 1000, base offset: 1024");
    refused(&["-d1", "-Sr", &small], 1, "only supported on remote filesystems");
    refused(&["-d1", "-b512", "-a63", &small], 1, "ERROR: CPU 63 is out of range");
    refused(&["-d1", "-b512", "-t5000", &small], 1, "5000 threads are more than");
    refused(&["-d1", "-b512", "-o100000", &small], 1, "outstanding I/O operations per thread are more than");
    refused(
        &["-d1", "-b512", "-Z1K,/nonexistent", "-w100", &small],
        1,
        "Error opening file: /nonexistent [2]",
    );
    refused(&["-d1", "-b512", "-Sm", "-Nn", "-w100", &small], 1, "not on persistent memory");
    refused(&["-d1", "#99999"], 1, "there is no such disk");
    refused(&["-d1", "smb://server/share"], 1, "ERROR: invalid SMB target");
    refused(&["-d1", "smb://ann:secret@server/share/file"], 1, "--smb-credentials");
    let foreign = path("foreign");
    fs::write(&foreign, "dear reader".repeat(1000)).expect("is written");
    refused(&["-d1", "-w1", "-b512", &foreign], 1, &format!("--yes-overwrite {foreign}"));
    refused(&["-d1", "-c1M", &foreign], 1, "holds data that -c did not make");
}

#[test]
fn a_full_disk_ends_the_creation_with_its_error() {
    // /dev/full has no size; a file system with a limit is the rlimit of file sizes here.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    let script = format!(
        "ulimit -f 1024; trap '' XFSZ; exec {} -c100M -d1 {}",
        env!("CARGO_BIN_EXE_diskspd"),
        file.display()
    );
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash starts");
    let (out, error) = texts(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""), "{error}");
    assert!(error.contains("Error creating file"), "{error}");
}

fn created(path: &Path, arguments: &[&str]) -> Output {
    let path = path.display().to_string();
    let mut all = vec!["-c1M", "-b4K", "-d1", "-W0", "-L"];
    all.extend(arguments);
    all.push(&path);
    diskspd(&all)
}

#[test]
fn a_run_prints_its_report_and_exports_its_histogram() {
    let directory = tempfile::tempdir().expect("a directory");
    let histogram = directory.path().join("latency").display().to_string();
    let output =
        created(&directory.path().join("file"), &["-w50", "-r", "-o4", "-t2", "--histogram", &histogram]);
    let (out, error) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let totals: Vec<u64> = out
        .lines()
        .filter(|line| line.starts_with("total:"))
        .filter_map(|line| line.split('|').nth(1)?.trim().parse().ok())
        .collect();
    let [total, read, write] = totals[..] else { panic!("three tables: {out}") };
    assert!(read > 0 && write > 0 && total == read + write, "{out}");
    let text = fs::read_to_string(histogram).expect("is written");
    let (reads, writes) = diskspd::histogram::import(&text).expect("is right");
    assert_eq!((reads.count(), writes.count()), (read, write));
}

#[test]
fn every_way_of_caching_and_mapping_works() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on a disk");
    let all: [&[&str]; 13] = [
        &["-Sb"],
        &["-Sw"],
        &["-Sm"],
        &["-Smw", "-Nv"],
        &["-Zr"],
        &["-Z64K"],
        &["-F2", "-O4"],
        &["-F2", "-r"],
        &["-p"],
        &["-si4K", "-t2"],
        &["-x", "-I1", "-n"],
        &["-g100i"],
        &["-i10", "-j10"],
    ];
    std::thread::scope(|scope| {
        for (at, options) in all.iter().enumerate() {
            let path = directory.path().join(at.to_string());
            scope.spawn(move || {
                let output = created(&path, &[&["-w50"], *options].concat());
                let (out, error) = texts(&output);
                assert_eq!(output.status.code(), Some(0), "{options:?}: {error}");
                assert!(out.contains("Total latency distribution:"), "{options:?}: {out}");
            });
        }
    });
}

#[test]
fn an_interruption_prints_what_was_measured_until_then() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file").display().to_string();
    let started = directory.path().join("run").display().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_diskspd"))
        .args(["-c1M", "-d600", "-W0", "-ysstarted", &file])
        .env("XDG_RUNTIME_DIR", &started)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    let event = Path::new(&started).join("diskspd/started");
    while !event.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("the program ends");
    let (out, error) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("*** Interrupted by Ctrl-C. Stopping I/O Request Generator. ***"), "{error}");
    assert!(out.contains("Total IO"), "{out}");
    assert!(!out.contains("actual test time:\t600.00s"), "{out}");
}

#[test]
fn events_start_stop_and_quit() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file").display().to_string();
    let runtime = directory.path().display().to_string();
    let with = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskspd"));
        command.args(arguments).env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    let set = with(&["-yestop"]).output().expect("the program starts");
    assert_eq!(set.status.code(), Some(1), "as DiskSpd does");
    assert!(texts(&set).1.contains("Succesfully set event: 'stop'\nNow exiting..."));
    fs::write(&file, vec![0; 1 << 20]).expect("is written");
    let stopped = with(&["-d600", "-W600", "-ypstop", "-yfdone", &file]).output().expect("starts");
    assert!(texts(&stopped).0.contains("The test was interrupted before the measurements began."));
    assert_eq!(stopped.status.code(), Some(0), "{:?}", texts(&stopped));
    assert!(directory.path().join("diskspd/done").exists());
    assert!(!directory.path().join("diskspd/stop").exists(), "the waiting run takes it back");
}

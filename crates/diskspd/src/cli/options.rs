//! Every option once: its form and its meaning.

/// One option of the usage text.
pub struct OptionText {
    /// As the user types it.
    pub form: &'static str,
    /// Meaning in the usage text and the manual page.
    pub meaning: &'static str,
}

const fn option(form: &'static str, meaning: &'static str) -> OptionText {
    OptionText { form, meaning }
}

/// In the order of the usage text. The second letter of a form is what the parser goes by.
pub const OPTIONS: &[OptionText] = &[
    option("-?", "display usage information"),
    option("-:<flags>", "experiment flags, a bitmask; 1: throttles may sleep longer than 1 ms"),
    option("-ag", "affinitize threads round robin over groups and processors (default)"),
    option(
        "-a[g#,]#[,#...]",
        "affinitize threads to these processors; group 0 where none is named; repeatable; not with -n",
    ),
    option("-b<size>", "block size in bytes or K/M/G/T (default 64K)"),
    option(
        "-B<base>[:len]",
        "base offset of the target and length of the range used; length conflicts with -f",
    ),
    option("-c<size>", "create files of this size, overwriting what is there"),
    option("-C<seconds>", "cool down time (default 0)"),
    option("-d<seconds>", "duration of the measured time (default 10)"),
    option("-D<milliseconds>", "standard deviation of IOPS over buckets of this length (default 1000)"),
    option(
        "-e<q|c|s>",
        "trace clock: performance, cycles, system; no such trace exists here, the option is reported",
    ),
    option("-ep", "trace with paged memory; reported only"),
    option(
        "-ePROVIDER",
        "trace PROCESS THREAD IMAGE_LOAD DISK_IO MEMORY_PAGE_FAULTS MEMORY_HARD_FAULTS NETWORK REGISTRY; reported only",
    ),
    option("-f<size>", "use only this much of the target"),
    option("-f<rst>", "open hints: random, sequential, temporary"),
    option("-F<count>", "total number of threads; not with -t"),
    option("-g<bytes per ms>", "throttle each thread on each target"),
    option("-g<n>i", "the same in I/Os per second"),
    option("-h", "deprecated, see -Sh"),
    option("-i<count>", "I/Os per burst, with -j"),
    option("-j<milliseconds>", "think time after a burst"),
    option("-I<priority>", "I/O priority: 1 very low, 2 low, 3 normal (default)"),
    option("-l", "large pages for I/O buffers"),
    option("-L", "measure latency"),
    option("-n", "no affinity"),
    option(
        "-N<vni>",
        "flush of memory mapped writes: v msync, n cache line flush, i the same without drain; with -Sm",
    ),
    option("-o<count>", "outstanding I/Os per thread and target (default 2)"),
    option("-O<count>", "outstanding I/Os per thread; with -F"),
    option("-p", "parallel asynchronous sequential I/Os at the same offset"),
    option("-P<count>", "a dot every so many completions (default 65536)"),
    option("-r[align]", "random I/O, aligned to this (default: block size)"),
    option(
        "-rd<pct|abs>...",
        "distribution of random I/O: -rdpct90/10:0/10:5/20 or -rdabs90/10G:0/10G:5/20G",
    ),
    option("-rs<percent>", "percentage of random I/Os in a mix with sequential ones"),
    option("-R[p]<text|xml>", "format of results (default text); p: print the profile and stop"),
    option("-s[i][align]", "sequential stride (default: block size); i: one offset shared by all threads"),
    option(
        "-S[bhmruw]",
        "b cached (default), u no cache, r no local cache, w write-through, h as uw, m memory mapped; alone as -Su",
    ),
    option("-t<count>", "threads per target (default 1); not with -F"),
    option("-T<offset>", "distance of the threads' first offsets"),
    option("-v[s]", "verbose; s: only more statistics in the summary"),
    option("-w<percent>", "percentage of writes (default 0)"),
    option("-W<seconds>", "warm up time (default 5)"),
    option("-x", "completion routines"),
    option("-X<file>", "use an XML profile; with -v -z -R -W -d -C and targets for its templates"),
    option("-z[seed]", "random seed (default 0; alone: taken from the clock)"),
    option("-Z", "zero the write buffers"),
    option("-Zr", "new random data for every write"),
    option("-Z<size>[,file]", "a source of write data of this size, random or from a file"),
    option("-ys<event> -yf<event>", "signal the event at the start, at the end"),
    option("-yr<event> -yp<event>", "wait for the event before the start; stop when it is set"),
    option("-ye<event>", "set the event and quit"),
    option("--report-style=<2.2|2.0.17>", "layout of the text report (default 2.2)"),
    option("--histogram <file>", "write the merged latency histogram"),
    option(
        "--start-at <unix milliseconds>",
        "open targets, then begin at this time; late, at once and with a warning",
    ),
    option("--progress-file <file>", "keep phase, I/Os, bytes and summed latency in this file, for programs"),
    option("--yes-overwrite <path>", "a write test may overwrite this target's data"),
    option("--smb-credentials <file>", "username=, password= and domain= lines for SMB targets"),
    option("--smb-transport <auto|tcp|rdma>", "how SMB targets are reached"),
    option("--smb-rdma-device <auto|name>", "SMB Direct by an RDMA device (ibv_devices), not in software"),
    option("--smb-channels <count>", "connections per SMB session"),
    option("--smb-sign, --smb-seal", "require signing, encryption"),
    option("--smb-no-crc", "SMB Direct without CRC, where the server does without"),
    option("--smb-busy-poll <microseconds>", "look for answers for so long before sleeping, 0 to 10000"),
    option("--man", "print this as a manual page"),
];

/// Forms of a target.
const TARGETS: [(&str, &str); 3] = [
    ("file_path", "a file, or a block device"),
    ("#<number>", "a physical disk, by its number"),
    (
        r"\\server\share\path",
        "a file of an SMB share, without a mount; also smb://[user@]server[,server...][:port]/share/path",
    ),
];

/// The text of `-?`.
pub fn usage(executable: &str, version: &str) -> String {
    let mut text = format!(
        "\nUsage: {executable} [options] target1 [ target2 [ target3 ...] ]\n{version}\n\nAvailable targets:\n"
    );
    for (form, meaning) in TARGETS {
        text.push_str(&format!("  {form:<28} {meaning}\n"));
    }
    text.push_str("\nAvailable options:\n");
    for option in OPTIONS {
        text.push_str(&format!("  {:<28} {}\n", option.form, option.meaning));
    }
    text
}

/// The manual page (troff), from the same table.
pub fn manual(version: &str) -> String {
    let mut text = format!(
        ".TH DISKSPD 1 \"\" \"diskspd {version}\" \"User Commands\"\n.SH NAME\ndiskspd \\- measures files, block devices and files on SMB shares\n\
         .SH SYNOPSIS\n.B diskspd\n[\\fIoptions\\fR] \\fItarget1\\fR [\\fItarget2\\fR ...]\n.SH TARGETS\n"
    );
    for (form, meaning) in TARGETS {
        item(&mut text, form, meaning);
    }
    text.push_str(".SH OPTIONS\nEach option is one word; all come before the targets. Sizes are bytes, or end in K, M, G, T or b (blocks).\n");
    for option in OPTIONS {
        item(&mut text, option.form, option.meaning);
    }
    text.push_str(".SH EXIT STATUS\n");
    for (form, meaning) in [
        ("0", "the run is done, or was interrupted after it had begun"),
        ("1", "the run failed, or an event was set (-ye)"),
        ("3", "the command line cannot be run"),
    ] {
        item(&mut text, form, meaning);
    }
    text
}

fn item(text: &mut String, form: &str, meaning: &str) {
    let escape = |words: &str| words.replace('\\', "\\e").replace('-', "\\-");
    text.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escape(form), escape(meaning)));
}

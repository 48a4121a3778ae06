//! The host's side of machines: starts them, answers them, follows them, and adds up their results.
//!
//! Promises: a machine ends at any end of this process; the scratch directory is gone afterwards;
//! QEMU's command line has no secret.

use super::image;
use crate::job::{Answer, Done, Job, LINE_BYTES_MAX, Process, Said, line};
use crate::machine::{Scratch, diskspd};
use crate::state::{Accelerator, Microvms, Template};
use api::fleet::FleetNode;
use diskspd::system::{ProcessorTimes, processor_times, processor_use};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const QEMU: &str = "qemu-system-x86_64";
const KVM: &str = "/dev/kvm";
/// Timeout from a machine's start to its first question; emulation takes seconds for a processor's instant.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// Time that machines may run beyond their end: their workers wait for their last operations, and the
/// kernel ends.
const GRACE: Duration = Duration::from_secs(90);
/// Less than `fleet stop` waits.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
/// Interval between reports of progress.
const TELL: Duration = Duration::from_millis(500);
const CONSOLE_LINES: usize = 5;

/// Checks that machines can run here.
///
/// # Errors
/// The reason why not, for people.
pub fn check(microvms: &Microvms) -> Result<PathBuf, String> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(format!("microVMs are for x86_64, and this machine is {}", std::env::consts::ARCH));
    }
    if microvms.accelerator == Accelerator::Kvm {
        OpenOptions::new().read(true).write(true).open(KVM).map_err(|error| {
            format!(
                "microVMs take {KVM}: {error}; --accelerator tcg emulates the processors, for trying it out"
            )
        })?;
    }
    image::find(Path::new(QEMU))
        .ok_or_else(|| format!("microVMs take {QEMU}: apt-get install qemu-system-x86"))
}

/// Runs a job in machines, one for each of its processes.
///
/// # Errors
/// The reason why there are no results.
pub fn work(
    job: &Job,
    microvms: &Microvms,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Answer) -> io::Result<()>,
) -> Result<Done, String> {
    let qemu = check(microvms)?;
    let template = job.template.ok_or("microVMs take a template: it says how large they are")?;
    let scratch = Scratch::new(&job.name).map_err(|error| format!("no scratch directory: {error}"))?;
    let (kernel, modules) = image::kernel(microvms)?;
    let initramfs = scratch.path().join("initramfs");
    image::write(&initramfs, &diskspd(), modules.as_deref())?;
    let (sender, events) = mpsc::channel();
    let mut machines = Machines::default();
    for (number, process) in job.processes.iter().enumerate() {
        let console = scratch.path().join(format!("{number}.console"));
        let errors = scratch.path().join(format!("{number}.errors"));
        let size = Size::of(template, process.targets.len());
        let words = arguments(microvms, size, &kernel, &initramfs, &console);
        machines.all.push(Machine::start(&qemu, &words, process, [console, errors], number, sender.clone())?);
    }
    drop(sender);
    let mut done = follow(job, &mut machines, &initramfs, &events, is_stopped, tell)?;
    let count = job.processes.len();
    let how = match microvms.accelerator {
        Accelerator::Kvm => "by KVM".to_owned(),
        Accelerator::Tcg => "by emulation, WHOSE FIGURES ARE WORTH NOTHING".to_owned(),
    };
    done.notes.insert(
        0,
        format!(
            "workers ran in QEMU machines {how}, {count} on this host, with {} processors and {} of memory for each worker, by QEMU's user networking, which costs the host more \
             than workers without machines",
            template.vcpus,
            types::size::show_size(template.memory_bytes)
        ),
    );
    Ok(done)
}

/// Processors and memory of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    processors: u64,
    memory_mib: u64,
}

impl Size {
    /// Multiplies the template by the workers of the machine.
    fn of(template: Template, workers: usize) -> Self {
        let workers = workers.max(1);
        Self {
            processors: (template.vcpus * workers as f64).ceil().max(1.0) as u64,
            memory_mib: (template.memory_bytes >> 20).saturating_mul(workers as u64),
        }
    }
}

fn arguments(
    microvms: &Microvms,
    size: Size,
    kernel: &Path,
    initramfs: &Path,
    console: &Path,
) -> Vec<String> {
    // QEMU's own lists need commas doubled.
    let path = |path: &Path| path.to_string_lossy().replace(',', ",,");
    let (accelerator, processor, append) = match microvms.accelerator {
        Accelerator::Kvm => ("kvm", "host", ""),
        Accelerator::Tcg => ("tcg,thread=multi", "max", " no_timer_check"),
    };
    // The machine type microvm has no timer that Linux can set the clock of an emulated processor by.
    let words = [
        ("-machine", "q35"),
        ("-accel", accelerator),
        ("-cpu", processor),
        ("-smp", &size.processors.to_string()),
        ("-m", &format!("{}M", size.memory_mib)),
        ("-display", "none"),
        ("-monitor", "none"),
        ("-kernel", &kernel.to_string_lossy()),
        ("-initrd", &initramfs.to_string_lossy()),
        // `--` ends the kernel's words; the others are the first process'.
        (
            "-append",
            &format!("console=ttyS0 quiet panic=-1 reboot=t rdinit=/{}{append} -- guest", image::FLEET),
        ),
        ("-chardev", &format!("file,id=console,path={}", path(console))),
        ("-serial", "chardev:console"),
        ("-chardev", "stdio,id=job,signal=off"),
        ("-device", "virtio-serial-pci"),
        ("-device", "virtserialport,chardev=job,name=job"),
        ("-netdev", "user,id=network,ipv6=off"),
        ("-device", "virtio-net-pci,netdev=network,romfile="),
    ];
    let flags = ["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned);
    flags
        .into_iter()
        .chain(words.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]))
        .collect()
}

/// `fleet microvm PARENT QEMU ARGUMENTS`: becomes QEMU, and ends when its parent does.
///
/// # Errors
/// If QEMU cannot be started.
pub fn become_qemu(parent: u32, words: &[String]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(Pid::as_raw_pid) != i32::try_from(parent).ok() {
        return Err(io::Error::other("who started it has ended"));
    }
    let [program, words @ ..] = words else { return Err(io::Error::other("no program is named")) };
    Err(Command::new(program).args(words).exec())
}

/// A machine's message; `None`: there are no more.
type Event = (usize, Option<Result<Said, String>>);

/// A machine that runs.
struct Machine {
    /// The node that its workers are counted at, and the first of them.
    node: String,
    first: String,
    process: Process,
    child: Child,
    input: Arc<Mutex<Option<ChildStdin>>>,
    /// Output of its kernel and of QEMU.
    console: PathBuf,
    errors: PathBuf,
    is_ready: bool,
    progress: Option<BTreeMap<String, FleetNode>>,
    done: Option<Done>,
}

/// All of them; those that are left are killed with the value.
#[derive(Default)]
struct Machines {
    all: Vec<Machine>,
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in &mut self.all {
            // The machine may have ended by itself.
            let _ = machine.child.kill();
            let _ = machine.child.wait();
        }
    }
}

impl Machine {
    fn start(
        qemu: &Path,
        words: &[String],
        process: &Process,
        [console, errors]: [PathBuf; 2],
        number: usize,
        events: mpsc::Sender<Event>,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", qemu.display());
        let mut process = process.clone();
        for target in &mut process.targets {
            *target = resolved(target)?;
        }
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("microvm")
            .arg(std::process::id().to_string())
            .arg("--")
            .arg(qemu)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let input = Arc::new(Mutex::new(child.stdin.take()));
        let output = child.stdout.take();
        let clock = input.clone();
        std::thread::spawn(move || {
            if let Some(output) = output {
                read(output, number, &clock, &events);
            }
            // Nobody listens when the run is over.
            let _ = events.send((number, None));
        });
        let first = process.targets.first().cloned().unwrap_or_default();
        let node = process.node.clone();
        Ok(Self {
            node,
            first,
            process,
            child,
            input,
            console,
            errors,
            is_ready: false,
            progress: None,
            done: None,
        })
    }

    fn tell(&self, text: &str) -> io::Result<()> {
        write_to(&self.input, text)
    }

    /// This machine's part of the job.
    fn job(&self, job: &Job) -> Job {
        Job {
            template: None,
            microvms: None,
            profiles: job.profiles.get(self.process.profile).cloned().into_iter().collect(),
            processes: vec![Process { profile: 0, ..self.process.clone() }],
            ..job.clone()
        }
    }

    fn failure(&self, why: &str) -> String {
        let said = [&self.errors, &self.console].map(|path| image::end_of(path, CONSOLE_LINES));
        let said: Vec<&str> = said.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        format!("the microVM of {} {why}: {}", self.first, said.join("; "))
    }
}

fn write_to(input: &Mutex<Option<ChildStdin>>, text: &str) -> io::Result<()> {
    let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *input {
        Some(input) => input.write_all(text.as_bytes()).and_then(|()| input.flush()),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Reads a machine's messages until it ends. Answers questions for the time at once.
fn read(output: impl Read, number: usize, input: &Mutex<Option<ChildStdin>>, events: &mpsc::Sender<Event>) {
    let mut lines = BufReader::new(output);
    loop {
        let mut text = String::new();
        match lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut text) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let said = match serde_json::from_str(&text) {
            Ok(Said::Clock) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                // The end of its output reports a machine that ended.
                let _ = write_to(input, &format!("{}\n", since.as_nanos()));
                continue;
            }
            Ok(said) => Ok(said),
            Err(error) => Err(format!("says what is not understood ({error})")),
        };
        let is_wrong = said.is_err();
        if events.send((number, Some(said))).is_err() || is_wrong {
            return;
        }
    }
}

/// Replaces the server's name in a target by an address: machines ask no name server.
///
/// # Errors
/// The name has no address of IPv4.
fn resolved(target: &str) -> Result<String, String> {
    let Some((server, path)) = target.strip_prefix("smb://").and_then(|rest| rest.split_once('/')) else {
        return Err(format!("{target}: a microVM reaches files of SMB servers only"));
    };
    let found = server.to_socket_addrs().map_err(|error| format!("{server}: {error}"))?;
    let address = found.into_iter().find(SocketAddr::is_ipv4);
    let address = address.ok_or_else(|| format!("{server} has no address of IPv4, which microVMs need"))?;
    Ok(format!("smb://{address}/{path}"))
}

/// Use of the host's processors during the measurement.
struct HostProcessors {
    from: SystemTime,
    to: SystemTime,
    before: Option<Vec<ProcessorTimes>>,
    after: Option<Vec<ProcessorTimes>>,
}

impl HostProcessors {
    fn new(job: &Job) -> Self {
        let span = job.profiles.first().and_then(|text| diskspd::xml::read_profile(text.as_bytes()).ok());
        let (warm_up_s, duration_s) = span
            .and_then(|profile| profile.time_spans.first().map(|span| (span.warm_up_s, span.duration_s)))
            .unwrap_or_default();
        let from =
            UNIX_EPOCH + Duration::from_millis(job.start_unix_ms) + Duration::from_secs(warm_up_s.into());
        Self { from, to: from + Duration::from_secs(duration_s.into()), before: None, after: None }
    }

    fn look(&mut self) {
        let now = SystemTime::now();
        if self.before.is_none() && now >= self.from {
            self.before = Some(processor_times());
        } else if self.before.is_some() && self.after.is_none() && now >= self.to {
            self.after = Some(processor_times());
        }
    }

    /// A run that was ended early has been measured until now.
    fn percent(mut self) -> Option<f64> {
        let before = self.before.take()?;
        let used = processor_use(&before, &self.after.take().unwrap_or_else(processor_times));
        (!used.is_empty())
            .then(|| used.iter().map(|one| 100.0 - one.idle_percent).sum::<f64>() / used.len() as f64)
    }
}

/// Until all machines have answered.
fn follow(
    job: &Job,
    machines: &mut Machines,
    initramfs: &Path,
    events: &Receiver<Event>,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Answer) -> io::Result<()>,
) -> Result<Done, String> {
    let began = Instant::now();
    let end = UNIX_EPOCH + Duration::from_millis(job.start_unix_ms.saturating_add(job.length_ms)) + GRACE;
    let mut processors = HostProcessors::new(job);
    let mut asked: Option<Instant> = None;
    let mut is_booted = false;
    let mut told = Instant::now();
    while machines.all.iter().any(|machine| machine.done.is_none()) {
        processors.look();
        if asked.is_none() && is_stopped() {
            if machines.all.iter().any(|machine| !machine.is_ready) {
                // A machine that still boots has measured nothing: do not wait for it.
                return Err("the run was ended before its microVMs were ready".into());
            }
            machines.all.iter().for_each(|machine| drop(machine.tell("stop\n")));
            asked = Some(Instant::now());
        }
        if let Some(late) = machines.all.iter().find(|machine| !machine.is_ready)
            && began.elapsed() > READY_WITHIN
        {
            return Err(late.failure(&format!("was not ready after {} s", READY_WITHIN.as_secs())));
        }
        if asked.is_some_and(|since| since.elapsed() > STOPPED_WITHIN) {
            return Err(format!("microVMs did not stop within {} s", STOPPED_WITHIN.as_secs()));
        }
        if SystemTime::now() > end {
            return Err(format!("microVMs went on for more than {} s after their time", GRACE.as_secs()));
        }
        match events.recv_timeout(Duration::from_millis(20)) {
            Ok((number, said)) => {
                let Some(machine) = machines.all.get_mut(number) else { continue };
                heard(machine, said, job)?;
                if !is_booted && machines.all.iter().all(|machine| machine.is_ready) {
                    is_booted = true;
                    // Nobody reads it again; if this process is killed, it does not stay behind.
                    let _ = fs::remove_file(initramfs);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("all microVMs have ended".into()),
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            tell(&Answer::Progress(progress(&machines.all)))
                .map_err(|_| "nobody listens any more".to_owned())?;
        }
    }
    let mut sum = Done::default();
    for machine in &mut machines.all {
        if let Some(done) = machine.done.take() {
            sum.add(done)?;
        }
    }
    // The machines know of their own processors only.
    sum.cpu_percent = processors.percent();
    Ok(sum)
}

fn heard(machine: &mut Machine, said: Option<Result<Said, String>>, job: &Job) -> Result<(), String> {
    match said {
        Some(Ok(Said::Ready)) => {
            machine.is_ready = true;
            let text = line(&machine.job(job));
            machine.tell(&text).map_err(|error| machine.failure(&format!("takes no job ({error})")))
        }
        Some(Ok(Said::Answer(Answer::Progress(progress)))) => {
            machine.progress = Some(progress);
            Ok(())
        }
        Some(Ok(Said::Answer(Answer::Done(done)))) => {
            machine.done = Some(done);
            Ok(())
        }
        Some(Ok(Said::Answer(Answer::Failed(why)))) => Err(why),
        // Answered where it was read.
        Some(Ok(Said::Clock)) => Ok(()),
        Some(Err(why)) => Err(machine.failure(&why)),
        None if machine.done.is_some() => Ok(()),
        None => Err(machine.failure("ended without an answer")),
    }
}

fn progress(machines: &[Machine]) -> BTreeMap<String, FleetNode> {
    let mut nodes: BTreeMap<String, FleetNode> = BTreeMap::new();
    for machine in machines {
        let waiting =
            FleetNode { workers: machine.process.targets.len() as u64, processes: 1, ..FleetNode::default() };
        let told = machine.progress.as_ref().and_then(|nodes| nodes.get(&machine.node));
        let node = nodes.entry(machine.node.clone()).or_default();
        *node = node.plus(told.unwrap_or(&waiting));
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_as_large_as_its_workers_together() {
        let template = Template { vcpus: 2.0, memory_bytes: 2 << 30 };
        assert_eq!(Size::of(template, 3), Size { processors: 6, memory_mib: 6144 });
        assert_eq!(Size::of(Template { vcpus: 0.5, ..template }, 1).processors, 1);
    }

    #[test]
    fn qemus_command_line_has_the_machine_and_no_secret() {
        let of = |accelerator| {
            let microvms = Microvms { accelerator, ..Microvms::default() };
            let size = Size { processors: 2, memory_mib: 512 };
            arguments(&microvms, size, Path::new("/k"), Path::new("/i"), Path::new("/a,b")).join(" ")
        };
        let words = of(Accelerator::Kvm);
        assert!(words.contains("-accel kvm -cpu host -smp 2 -m 512M"), "{words}");
        assert!(words.contains("rdinit=/bin/fleet -- guest") && words.contains("path=/a,,b"), "{words}");
        assert!(of(Accelerator::Tcg).contains("-accel tcg,thread=multi"));
    }

    #[test]
    fn a_servers_name_becomes_its_address() {
        assert_eq!(resolved("smb://127.0.0.11:4455/s/w.dat").unwrap(), "smb://127.0.0.11:4455/s/w.dat");
        assert!(resolved("smb://localhost:445/s/w.dat").unwrap().starts_with("smb://127.0.0.1:445/"));
        assert!(resolved("smb://[::1]:445/s/w.dat").unwrap_err().contains("IPv4"));
        assert!(resolved("/tmp/x").is_err());
    }

    #[test]
    fn questions_for_the_time_go_no_further_and_nonsense_ends_a_machine() {
        let text = format!("{}{}nonsense\n{}", line(&Said::Clock), line(&Said::Ready), line(&Said::Ready));
        let (sender, events) = mpsc::channel();
        read(text.as_bytes(), 7, &Mutex::new(None), &sender);
        drop(sender);
        let all: Vec<Event> = events.into_iter().collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], (7, Some(Ok(Said::Ready))));
        assert!(matches!(&all[1], (7, Some(Err(why))) if why.contains("not understood")));
    }

    #[test]
    fn without_kvm_the_reason_is_told() {
        if Path::new(KVM).exists() {
            return;
        }
        let why = check(&Microvms::default()).unwrap_err();
        assert!(why.contains("/dev/kvm") && why.contains("--accelerator tcg"), "{why}");
    }
}

//! `diskspd`: reads the command line, runs its profile, prints the report.

#![forbid(unsafe_code)]

use diskspd::cli::{self, CommandLine, CommandLineError, EXIT_COMMAND_LINE, EXIT_FAILED};
use diskspd::profile::{Profile, ResultFormat, Trace};
use diskspd::report::{self, Report};
use diskspd::run::{self, Outcome, RunOptions};
use diskspd::{events, histogram, system, xml};
use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_else(|| "diskspd".into());
    let arguments: Vec<String> = words.collect();
    let name = program.rsplit('/').next().unwrap_or("diskspd").to_owned();
    let usage = || cli::usage(&name, &format!("version {} ({})", system::VERSION, system::VERSION_DATE));
    if arguments.is_empty() {
        print(&usage());
        return ExitCode::from(EXIT_COMMAND_LINE);
    }
    let clock_ms = (sys::monotonic_now().0 / 1_000_000) as u32;
    let line = match cli::parse(&arguments, clock_ms) {
        Ok(line) => line,
        Err(CommandLineError(text)) => {
            eprintln!("{text}");
            return ExitCode::from(EXIT_COMMAND_LINE);
        }
    };
    if line.help {
        print(&usage());
        return ExitCode::SUCCESS;
    }
    if line.manual {
        print(&cli::manual(system::VERSION));
        return ExitCode::SUCCESS;
    }
    if let Some(event) = &line.events.set {
        return set_event(event);
    }
    let command_line = format!("{name} {}", arguments.join(" "));
    match whole(&line, &command_line) {
        Ok(()) => ExitCode::SUCCESS,
        Err((text, status)) => {
            eprintln!("{text}");
            ExitCode::from(status)
        }
    }
}

/// Prints to stdout; a reader who went away is no failure.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// `-ye` ends with 1 even if it succeeds, as DiskSpd does.
fn set_event(name: &str) -> ExitCode {
    match events::set(name) {
        Ok(()) => {
            eprintln!("Succesfully set event: '{name}'");
            eprintln!("Now exiting...");
        }
        Err(error) => eprintln!("ERROR: setting event '{name}' failed: {error}"),
    }
    ExitCode::from(EXIT_FAILED)
}

/// Text and exit status of a failure.
type Failed = (String, u8);

fn whole(line: &CommandLine, command_line: &str) -> Result<(), Failed> {
    let profile = match &line.xml {
        None => line.profile.clone(),
        Some(path) => profile_of_file(path, line)?,
    };
    let findings = profile.validate();
    if !findings.errors.is_empty() {
        return Err((findings.errors.join("\n"), EXIT_COMMAND_LINE));
    }
    for warning in &findings.warnings {
        eprintln!("{warning}");
    }
    if profile.profile_only {
        print(&match profile.format {
            ResultFormat::Text => {
                let mut text = String::new();
                report::profile(&mut text, command_line, &profile, line.report_style);
                text
            }
            ResultFormat::Xml => xml::profile(&profile, 0),
        });
        return Ok(());
    }
    if let Some(trace) = &profile.trace {
        report_trace(trace);
    }
    let information = system::information();
    let outcome = measure(line, &profile)?;
    if let Some(path) = &line.histogram {
        let text = histogram::export(&outcome.spans);
        std::fs::write(path, text)
            .map_err(|error| (format!("ERROR: writing histogram '{path}' failed: {error}"), EXIT_FAILED))?;
    }
    let spans = &outcome.spans;
    let report =
        Report { command_line, profile: &profile, system: &information, spans, style: line.report_style };
    match profile.format {
        ResultFormat::Text => print(&report::text(&report)),
        ResultFormat::Xml => print(&xml::results(&report)),
    }
    Ok(())
}

/// `-X`: the file's profile, changed by what stands beside it, its templates replaced by the targets given.
fn profile_of_file(path: &str, line: &CommandLine) -> Result<Profile, Failed> {
    let failed = |text: String| (text, EXIT_COMMAND_LINE);
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(xml::PROFILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| failed(format!("ERROR: XML profile '{path}' cannot be read: {error}")))?;
    let mut profile = xml::read_profile(&bytes).map_err(|error| failed(error.to_string()))?;
    line.changes.apply(&mut profile);
    profile.fill_templates(&line.targets).map_err(failed)?;
    Ok(profile)
}

fn measure(line: &CommandLine, profile: &Profile) -> Result<Outcome, Failed> {
    let failed = |text: String| (text, EXIT_FAILED);
    sys::interrupt::install().map_err(|error| failed(format!("ERROR: installing Ctrl-C failed: {error}")))?;
    let options = RunOptions {
        overwrite: &line.overwrite,
        smb: &line.smb,
        events: &line.events,
        latency: line.histogram.is_some(),
        progress_file: line.progress_file.as_deref(),
        is_terminal: std::io::stderr().is_terminal(),
        is_interrupted: &|| sys::interrupt::received() > 0,
    };
    let result = run::run(profile, &options);
    if let Some(name) = &line.events.signal_finish
        && let Err(error) = events::set(name)
    {
        eprintln!("ERROR: setting event '{name}' failed: {error}");
    }
    for waited in [&line.events.wait_start, &line.events.stop].into_iter().flatten() {
        events::clear(waited);
    }
    if sys::interrupt::received() > 0 {
        eprintln!("*** Interrupted by Ctrl-C. Stopping I/O Request Generator. ***");
    }
    match result {
        Ok(outcome) => Ok(outcome),
        Err(run::RunError::Threads(text)) => Err(failed(format!(
            "{text}\nThere has been an error during threads execution\nError generating I/O requests"
        ))),
        Err(error) => Err(failed(format!("{error}\nError generating I/O requests"))),
    }
}

/// There is no ETW here: the events asked for are named, and left out.
fn report_trace(trace: &Trace) {
    for (is_wanted, provider) in [
        (trace.process, "PROCESS"),
        (trace.thread, "THREAD"),
        (trace.image_load, "IMAGE_LOAD"),
        (trace.disk_io, "DISK_IO"),
        (trace.memory_page_faults, "MEMORY_PAGE_FAULTS"),
        (trace.memory_hard_faults, "MEMORY_HARD_FAULTS"),
        (trace.network, "NETWORK"),
        (trace.registry, "REGISTRY"),
    ] {
        if is_wanted {
            eprintln!("WARNING: -e{provider}: Event Tracing for Windows is not available on this platform");
        }
    }
}

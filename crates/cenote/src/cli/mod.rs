//! The command line: every noun but `serve`, `quickstart` and `smb` only talks to the API.
//!
//! Promises: what destroys asks for a name first (I8). Never opens the server's files, but for address and token.

mod accounts;
mod activity;
pub mod args;
mod client;
mod inspect;
mod output;
mod quota;
mod rdma;
mod smb;
mod storage;

use crate::service_manager::{self, JournalLines};
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
pub use client::Failure;
use client::{Client, data_directory};
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
pub use storage::show_import;

/// Runs the command that the process was started with, and prints what went wrong.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_api_only = !matches!(
        cli.command,
        Command::Quickstart(_) | Command::Serve(_) | Command::Smb(_) | Command::Rdma(args::Rdma::Ping(_))
    );
    if is_api_only {
        // `cenote session list | head` ends without a word.
        sys::interrupt::end_on_broken_pipe();
    }
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                let priority = if service_manager::logs_to_journal() { "<3>" } else { "" };
                anstream::eprintln!("{priority}cenote: {}", failure.message);
            }
            ExitCode::from(failure.exit_status)
        }
    }
}

/// Runs a command.
///
/// # Errors
/// What to print, and the exit status.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let global = &cli.global;
    let client = || Client::find(global);
    match cli.command {
        Command::Quickstart(options) => {
            log_to_stderr("warn");
            crate::quickstart::run(&options, &quickstart_directory(global), crate::dataplane::start)
                .map_err(|error| Failure::new(error.to_string()))
        }
        Command::Serve(options) => {
            let config = crate::config::Config::read(&options.config)
                .map_err(|error| Failure::new(error.to_string()))?;
            log_to_stderr(&config.log.level);
            crate::daemon::serve(&config, crate::dataplane::start)
                .map_err(|error| Failure::new(error.to_string()))
        }
        Command::Disk(args::Disk::Inspect { path }) => inspect::disk(&path, global.json),
        Command::Disk(command) => storage::disk(&client()?, global.json, command),
        Command::Pool(command) => storage::pool(&client()?, global.json, command),
        Command::Volume(command) => storage::volume(&client()?, global.json, command),
        Command::Share(command) => accounts::share(&client()?, global.json, command),
        Command::User(command) => accounts::user(&client()?, global.json, command),
        Command::Group(command) => accounts::group(&client()?, global.json, command),
        Command::Quota(command) => quota::quota(&client()?, global.json, command),
        Command::Acl(command) => accounts::acl(&client()?, global.json, command),
        Command::Session(command) => activity::session(&client()?, global.json, command),
        Command::Rdma(args::Rdma::Ping(options)) => rdma::ping(options, global.json),
        Command::Rdma(command) => rdma::rdma(&client()?, global.json, command),
        Command::File(command) => activity::file(&client()?, global.json, command),
        Command::Job(command) => activity::job(&client()?, global.json, command),
        Command::Health => activity::health(&client()?, global.json),
        Command::Perf(command) => activity::perf(&client()?, global.json, &command),
        Command::Config(args::Config::Show { effective: true }) if global.json => {
            let values: api::model::Configuration = client()?.get_json("/config")?;
            output::json(&values)
        }
        Command::Config(args::Config::Show { effective: false }) if global.json => {
            output::json(&crate::config::Config::default())
        }
        Command::Config(args::Config::Show { effective: true }) => {
            anstream::print!("{}", client()?.get_text("/config")?);
            Ok(())
        }
        Command::Config(args::Config::Show { effective: false }) => {
            anstream::print!("{}", crate::config::Config::default().documented());
            Ok(())
        }
        Command::Config(args::Config::Check { file }) => {
            crate::config::Config::read(&file).map_err(|error| Failure::new(error.to_string()))?;
            output::say(global.json, format!("{} is right", file.display()))
        }
        Command::Smb(command) => smb::run(command, global.json),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "cenote", &mut script);
            anstream::print!("{}", String::from_utf8_lossy(&script));
            Ok(())
        }
        Command::Man { directory } => man(&directory),
    }
}

/// The data directory that a quickstart uses if none is given.
pub fn quickstart_directory(global: &args::Global) -> std::path::PathBuf {
    match (&global.data, std::env::var_os("CENOTE_DATA")) {
        (None, None) => "cenote-data".into(),
        _ => data_directory(global),
    }
}

/// `CENOTE_LOG` overrides the level, also by module (`node=debug`).
fn log_to_stderr(level: &str) {
    let filter = std::env::var("CENOTE_LOG").unwrap_or_else(|_| level.to_owned());
    let log = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr);
    if service_manager::logs_to_journal() {
        log.event_format(JournalLines).init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).init();
    }
}

fn man(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!(
            "man pages cannot be written to {}: {error}; choose another directory",
            directory.display()
        ))
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(failed)?;
    anstream::println!("man pages are in {}", directory.display());
    Ok(())
}

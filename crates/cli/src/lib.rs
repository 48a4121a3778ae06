//! The command line: nouns and verbs that ask the management API, and those for files of any SMB server.
//!
//! Promises: a destructive command asks for a name first (I8). Never opens the server's files, but for
//! address and token.

#![forbid(unsafe_code)]

mod accounts;
mod activity;
pub mod args;
mod cluster;
mod complete;
mod dashboard;
mod inspect;
mod jobs;
mod man;
pub mod output;
mod plan;
mod printable;
mod progress;
mod quota;
mod rdma;
mod room;
mod smb;
mod storage;
mod tokens;

use api_client::{Client, Failure};
use args::{Cli, Command, Global, Own};
use clap::Parser;
use std::process::ExitCode;
pub use storage::show_import;

/// Runs the command that the process was started with, and prints errors. `own` runs commands without a
/// server; `priority` stands before an error, for the journal.
pub fn main(priority: &str, own: impl FnOnce(Own, &Global) -> Result<(), Failure>) -> ExitCode {
    // Answers a shell's completion, and ends then.
    clap_complete::CompleteEnv::with_factory(complete::command).var(complete::VARIABLE).complete();
    let cli = Cli::parse();
    let has_sockets = matches!(
        cli.command,
        Command::Own(Own::Quickstart(_) | Own::Serve(_) | Own::Witness(_))
            | Command::Smb(_)
            | Command::Rdma(args::Rdma::Ping(_))
    );
    if !has_sockets {
        // `cenote session list | head` ends without a word.
        sys::interrupt::end_on_broken_pipe();
    }
    let done = match cli.command {
        Command::Own(command) => own(command, &cli.global),
        Command::Cluster(args::Cluster::Recover { etcd_program, confirmation }) => {
            own(Own::Recover(args::Recovery { etcd_program, yes: confirmation.yes }), &cli.global)
        }
        command => run(command, &cli.global),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                anstream::eprintln!("{priority}cenote: {}", printable::printable_lines(&failure.message));
            }
            ExitCode::from(failure.exit_status)
        }
    }
}

/// Runs a command that asks a server.
fn run(command: Command, global: &Global) -> Result<(), Failure> {
    let client = || Client::find(&global.access);
    match command {
        // The caller has carried it out.
        Command::Own(_) => Ok(()),
        Command::Cluster(command) => cluster::cluster(&client()?, global.json, command),
        Command::Node(command) => cluster::node(&client()?, global.json, command),
        Command::Disk(args::Disk::Inspect { path }) => inspect::disk(&path, global.json),
        Command::Disk(command) => storage::disk(&client()?, global.json, command),
        Command::Pool(command) => storage::pool(&client()?, global.json, command),
        Command::Volume(command) => storage::volume(&client()?, global.json, command),
        Command::Share(command) => accounts::share(&client()?, global.json, command),
        Command::User(command) => accounts::user(&client()?, global.json, command),
        Command::Group(command) => accounts::group(&client()?, global.json, command),
        Command::Token(command) => tokens::token(&client()?, global.json, command),
        Command::Quota(command) => quota::quota(&client()?, global.json, command),
        Command::Acl(command) => accounts::acl(&client()?, global.json, command),
        Command::Session(command) => activity::session(&client()?, global.json, command),
        Command::Rdma(args::Rdma::Ping(options)) => rdma::ping(options, global.json),
        Command::Rdma(command) => rdma::rdma(&client()?, global.json, command),
        Command::File(command) => activity::file(&client()?, global.json, command),
        Command::Job(command) => jobs::job(&client()?, global.json, command),
        Command::Alert(args::Alert::Test) => activity::test_alerts(&client()?, global.json),
        Command::Health => activity::health(client(), global.json),
        Command::Perf(command) => activity::perf(&client()?, global.json, &command),
        Command::Dashboard(options) => dashboard::dashboard(&client()?, global.json, &options),
        Command::Plan(options) => plan::plan(global, global.json, &options),
        Command::Smb(command) => smb::run(command, global.json),
        Command::Completion { shell } => {
            anstream::print!("{}", String::from_utf8_lossy(&complete::script(shell)?));
            Ok(())
        }
        Command::Man { directory } => {
            man::write_all(&directory)?;
            printable::println!("man pages are in {}", directory.display());
            Ok(())
        }
    }
}

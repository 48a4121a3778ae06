//! Commands of the program itself: running a server, and the configuration. All others are in `cli`.

use crate::config::Config;
use crate::logging;
use crate::service_manager;
use api_client::{Client, Failure, data_directory, near_directory};
use cli::args::{self, Global, Own};
use cli::output;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs the command of the command line, and prints errors.
///
/// `on_loop` puts each opened disk on the data plane's event loop: [`node::on_loop`], or a test's
/// function that injects faults.
pub fn main(on_loop: node::OnLoop) -> ExitCode {
    let priority = if service_manager::logs_to_journal() { "<3>" } else { "" };
    cli::main(priority, |command, global| run(command, global, on_loop))
}

fn run(command: Own, global: &Global, on_loop: node::OnLoop) -> Result<(), Failure> {
    let start = |options| crate::dataplane::start(options, on_loop);
    match command {
        Own::Quickstart(options) if options.nodes.is_some() => {
            logging::begin("warn");
            crate::trial::run(&options, &quickstart_directory(global)?)
                .map_err(|error| Failure::new(error.to_string()))
        }
        Own::Quickstart(options) => {
            logging::begin("warn");
            crate::quickstart::run(&options, &quickstart_directory(global)?, start)
                .map_err(|error| Failure::new(error.to_string()))
        }
        Own::Serve(options) => {
            let config = Config::read(&options.config).map_err(|error| Failure::new(error.to_string()))?;
            logging::begin(&config.log.level);
            if options.end_with_stdin {
                crate::trial::end_with_stdin().map_err(|error| Failure::new(error.to_string()))?;
            }
            crate::daemon::serve(config, &options.config, start)
                .map_err(|error| Failure::new(error.to_string()))
        }
        Own::Witness(args::Witness::Serve(options)) => {
            logging::begin("info");
            crate::witness::serve(&options, &data_directory(&global.access))
                .map_err(|error| Failure::new(error.to_string()))
        }
        Own::Config(command) => config(command, global),
        Own::Recover(recovery) => {
            logging::begin("warn");
            let confirmed = |what: &str, name: &str| {
                output::confirm(what, name, recovery.yes.as_deref()).map_err(|failure| failure.message)
            };
            let program = recovery.etcd_program.as_deref();
            let done = crate::recover::recover(&data_directory(&global.access), program, confirmed);
            output::say(global.json, done.map_err(|error| Failure::new(error.to_string()))?)
        }
    }
}

fn config(command: args::Config, global: &Global) -> Result<(), Failure> {
    match command {
        args::Config::Show { effective: true } if global.json => {
            let values: api::model::Configuration = Client::find(&global.access)?.get_json("/config")?;
            output::json(&values)
        }
        args::Config::Show { effective: false } if global.json => output::json(&Config::default()),
        args::Config::Show { effective: true } => {
            anstream::print!("{}", Client::find(&global.access)?.get_text("/config")?);
            Ok(())
        }
        args::Config::Show { effective: false } => {
            anstream::print!("{}", Config::default().documented());
            Ok(())
        }
        args::Config::Check { file } => {
            Config::read(&file).map_err(|error| Failure::new(error.to_string()))?;
            output::say(global.json, format!("{} is right", file.display()))
        }
    }
}

/// Returns the data directory of a quickstart without an argument. Refuses another user's in the
/// current folder: its owner would own the server.
fn quickstart_directory(global: &Global) -> Result<PathBuf, Failure> {
    match (&global.access.data, std::env::var_os("CENOTE_DATA")) {
        (None, None) => near_directory(),
        _ => Ok(data_directory(&global.access)),
    }
}

//! `fleet sweep`: every combination, a row for each; existing rows are not measured again.

use super::rows::{Kind, write_report};
use super::run::{RESULT_FILE, append, read_table};
use super::{Failure, Ready, output_directory, profile_of, run_seconds, say, show_seconds, tell};
use crate::args;
use crate::row::{self, RunDescription};
use crate::state::State;
use crate::sweep::{Sweep, SweepRun};
use crate::table::commas;
use crate::workload::Times;
use std::path::Path;

/// `Start-FleetSweep`'s own times.
const TIMES: Times = Times { warm_up_s: 60, duration_s: 30, cool_down_s: 30 };

pub fn sweep(directory: &Path, options: &args::Sweep) -> Result<(), Failure> {
    let state = State::load_made(directory)?;
    let runs = list(options, &state).expand()?;
    super::check_alignments(&state, &options.alignment)?;
    let times = options.durations.times(TIMES);
    // All are tried before the first is measured: a wrong one would end the sweep in the night.
    let profiles = runs.iter().map(|run| profile(options, run, times)).collect::<Result<Vec<_>, _>>()?;
    tell(&format!("{} runs, about {}", runs.len(), show_seconds(runs.len() as u64 * run_seconds(times))));
    if options.output.dry_run {
        runs.iter().for_each(|run| say(&run.label));
        return Ok(());
    }
    if let Some(running) = super::life::running(&state) {
        return Err(Failure::new(format!("'{}' runs: `fleet stop` first", running.label)));
    }
    let out = output_directory(&options.output, "sweep")?;
    let file = out.join(RESULT_FILE);
    let workers = u64::from(state.running_workers()) * state.nodes.len() as u64;
    let mut ready = Ready::new(directory, &state, &options.durations);
    let count = runs.len();
    for (number, (run, profile)) in runs.iter().zip(&profiles).enumerate() {
        if !row::measured(&read_table(&file)?, &run.keys()).is_empty() {
            say(&format!("{:>3}/{count}  {:<28} measured before", number + 1, run.label));
            continue;
        }
        ready.alignment_percent = run.alignment_percent;
        let behind_s = (count - number - 1) as u64 * run_seconds(times);
        let outcome = ready.run_whole(&run.label, profile, (0..state.nodes.len()).collect(), behind_s)?;
        let qos = run.iops.map_or(0, u64::from);
        let description = RunDescription {
            label: run.label.clone(),
            keys: run.keys(),
            qos,
            workers,
            ..RunDescription::default()
        };
        append(&file, &description, &outcome)?;
        ready.tell_notes(&outcome);
        let latency = outcome.total_latency();
        say(&format!(
            "{:>3}/{count}  {:<28} {:>11} IOPS {:>9.1} MB/s  mean {:.3} ms, 99 % {:.3} ms",
            number + 1,
            run.label,
            commas(outcome.iops()),
            outcome.bytes_per_s() / 1e6,
            latency.mean_ms.unwrap_or(0.0),
            latency.p99_ms.unwrap_or(0.0)
        ));
    }
    write_report(Kind::Sweep, &out)?;
    say(&format!("rows are in {}, report.md and its figure beside them", file.display()));
    Ok(())
}

/// The lists of the command line; omitted ones have the fleet's values.
fn list(options: &args::Sweep, state: &State) -> Sweep {
    Sweep {
        block_bytes: options.block.clone(),
        threads: options.threads.clone(),
        requests: options.outstanding.clone(),
        write_percent: options.write.clone(),
        patterns: options.pattern.clone(),
        iops: if options.iops.is_empty() {
            vec![None]
        } else {
            options.iops.iter().copied().map(Some).collect()
        },
        alignment_percent: if options.alignment.is_empty() {
            vec![state.alignment_percent]
        } else {
            options.alignment.clone()
        },
        add_spec: options.add_spec.clone(),
    }
}

fn profile(
    options: &args::Sweep,
    run: &SweepRun,
    times: Times,
) -> Result<diskspd::profile::Profile, Failure> {
    let mut profile = profile_of(&options.workload, &args::Shape::default())?;
    run.apply(&mut profile)?;
    times.apply(&mut profile);
    let mut filled = profile.clone();
    filled.fill_templates(&["x".to_owned()])?;
    let findings = filled.validate();
    if findings.errors.is_empty() {
        Ok(profile)
    } else {
        Err(Failure::new(format!("{}: {}", run.label, findings.errors.join("; "))))
    }
}

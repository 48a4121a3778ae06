//! `fleet measure`: the core workloads, each searched from its anchor to idle, with the fit of IOPS by CPU.

use super::rows::{Kind, write_report};
use super::run::{RESULT_FILE, append, read_table};
use super::{Failure, Ready, output_directory, profile_of, run_seconds, say, show_seconds, tell};
use crate::args::{self, Shape};
use crate::row::{self, RunDescription};
use crate::search::Shape as SearchShape;
use crate::search::{Cutoff, Limits, Search, Step, Trial};
use crate::state::{State, Template};
use crate::table::commas;
use crate::workload::{Times, limit_iops, set_limit};
use diskspd::profile::Profile;
use std::path::Path;

/// Warm-up of runs on a system that is warm.
const SEARCH_WARM_UP_S: u32 = 30;
/// Cutoffs of VDI and SQL.
const CUTOFFS: Limits = Limits { cpu_percent: Some(40.0), read_ms: Some(3.0), write_ms: Some(3.0) };
/// Runs of a search, for the estimate of time: VMFleet's take 8 to 20.
const RUNS_ABOUT: u64 = 10;

/// A workload to be measured.
struct Workload {
    name: String,
    profile: Profile,
    template: &'static str,
    running_percent: u32,
    is_sweep: bool,
    limits: Limits,
}

/// The matrix of `Measure-FleetCoreWorkload`.
fn core() -> Result<Vec<Workload>, Failure> {
    let mut all = Vec::new();
    let small = |name: &str, profile, is_sweep, limits| Workload {
        name: name.to_owned(),
        profile,
        template: "A1v2",
        running_percent: 100,
        is_sweep,
        limits,
    };
    for write in [0, 10, 30] {
        let shape = Shape { write: Some(write), random_ratio: Some(50), ..Shape::default() };
        let profile = profile_of("general", &shape)?;
        all.push(small(&format!("General4KWriteRatio{write}"), profile, true, Limits::default()));
    }
    let shape = Shape { max_offset: Some(5 << 30), ..Shape::default() };
    all.push(small("Peak4kRead", profile_of("peak", &shape)?, false, Limits::default()));
    all.push(small("Vdi", profile_of("vdi", &Shape::default())?, true, CUTOFFS));
    let profile = profile_of("sql", &Shape::default())?;
    all.push(Workload { template: "A4v2", running_percent: 25, ..small("Sql", profile, true, CUTOFFS) });
    Ok(all)
}

pub fn measure(directory: &Path, options: &args::Measure) -> Result<(), Failure> {
    let state = State::load_made(directory)?;
    let mut workloads = match &options.workload {
        Some(name) => vec![Workload {
            name: name.clone(),
            profile: profile_of(name, &options.shape)?,
            template: "",
            running_percent: state.running_percent,
            is_sweep: true,
            limits: Limits {
                cpu_percent: options.cutoff_cpu,
                read_ms: options.cutoff_latency,
                write_ms: options.cutoff_latency,
            },
        }],
        None => core()?,
    };
    if let Some(only) = &options.only {
        workloads.retain(|one| one.name.to_ascii_lowercase().starts_with(&only.to_ascii_lowercase()));
    }
    let alignments = alignments(options, &state);
    super::check_alignments(&state, &alignments)?;
    let times = options.durations.times(Times::default());
    let searches = workloads.len() * alignments.len();
    let about = searches as u64
        * RUNS_ABOUT
        * run_seconds(Times { warm_up_s: times.warm_up_s.min(SEARCH_WARM_UP_S), ..times });
    tell(&format!("{searches} searches, each of about {RUNS_ABOUT} runs: about {}", show_seconds(about)));
    if alignments.len() == 1 && options.alignment.is_empty() && options.workload.is_none() {
        tell("with one node there is no other one to run workers at: alignment of 70 % is left out");
    }
    let passes = passes(&workloads, &alignments);
    if options.output.dry_run {
        passes.iter().for_each(|(one, alignment)| say(&format!("{} at alignment {alignment} %", one.name)));
        return Ok(());
    }
    let out = output_directory(&options.output, "coreworkload")?;
    for (workload, alignment) in passes {
        one(directory, &state, workload, alignment, times, options, &out)?;
    }
    write_report(Kind::Measure, &out)?;
    super::show::results(&out, None, false)
}

/// As VMFleet: the core workloads with all workers at their volumes' nodes, then with 30 % elsewhere;
/// one's own workload with the fleet's placement.
fn alignments(options: &args::Measure, state: &State) -> Vec<u32> {
    match (options.alignment.as_slice(), &options.workload) {
        ([], Some(_)) => vec![state.alignment_percent],
        ([], None) if state.nodes.len() < 2 => vec![100],
        ([], None) => vec![100, 70],
        (given, _) => given.to_vec(),
    }
}

/// The searches in VMFleet's order: each template once at every alignment, and there all its workloads.
fn passes<'a>(workloads: &'a [Workload], alignments: &[u32]) -> Vec<(&'a Workload, u32)> {
    let by_template = workloads.chunk_by(|one, next| one.template == next.template);
    by_template
        .flat_map(|of_template| {
            alignments.iter().flat_map(move |percent| of_template.iter().map(move |one| (one, *percent)))
        })
        .collect()
}

fn keys(state: &State, workload: &Workload, alignment: u32) -> Vec<(String, String)> {
    let template = state.template.unwrap_or(Template { vcpus: 0.0, memory_bytes: 0 });
    [
        ("Workload", workload.name.clone()),
        ("ComputeTemplate", workload.template.to_owned()),
        ("ProcessorCount", template.vcpus.to_string()),
        ("MemoryStartupBytes", template.memory_bytes.to_string()),
        ("FleetVMPercent", workload.running_percent.to_string()),
        ("DataDiskBytes", state.data_bytes.to_string()),
        ("VMAlignmentPct", alignment.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Searches one workload, continuing from its rows.
fn one(
    directory: &Path,
    state: &State,
    workload: &Workload,
    alignment: u32,
    times: Times,
    options: &args::Measure,
    out: &Path,
) -> Result<(), Failure> {
    let template = Template::named(workload.template).or(state.template);
    let state = State { template, running_percent: workload.running_percent, ..state.clone() };
    let keys = keys(&state, workload, alignment);
    let file = out.join(RESULT_FILE);
    let earlier = row::measured(&read_table(&file)?, &keys);
    let workers = u64::from(state.running_workers()) * state.nodes.len() as u64;
    let targets = workload.profile.time_spans.first().map_or(0, |span| span.targets.len());
    let shape = SearchShape { is_limited: limit_iops(&workload.profile) > 0, targets };
    say(&format!(
        "{} at alignment {alignment} %, {workers} workers, {} runs measured before",
        workload.name,
        earlier.len()
    ));
    let mut search = Search::new(shape, workload.is_sweep, workers, workload.limits, earlier);
    let mut ready = Ready::new(directory, &state, &options.durations);
    ready.alignment_percent = alignment;
    loop {
        let trial = match search.next_step() {
            Step::Run(trial) => trial,
            Step::Done(why) => {
                say(&format!("  done: {why}"));
                return Ok(());
            }
        };
        let profile = profile_for(&workload.profile, trial, times)?;
        let label = format!("{}-qos{}", workload.name, trial.qos);
        let outcome = ready.run_whole(&label, &profile, (0..state.nodes.len()).collect(), 0)?;
        let cutoff = search.record(trial, row::figures(&outcome));
        let description = RunDescription {
            label,
            keys: keys.clone(),
            run_type: trial.run_type,
            cutoff,
            qos: trial.qos,
            workers,
        };
        append(&file, &description, &outcome)?;
        ready.tell_notes(&outcome);
        let cut = if cutoff == Cutoff::No { String::new() } else { format!("  cutoff: {cutoff}") };
        let latency = outcome.total_latency();
        say(&format!(
            "  {:<12} limit {:>7} {:>11} IOPS  CPU {:>5.1} %  mean {:.3} ms{cut}",
            trial.run_type.to_string(),
            trial.qos,
            commas(outcome.iops()),
            outcome.cpu_percent.unwrap_or(0.0),
            latency.mean_ms.unwrap_or(0.0)
        ));
    }
}

/// The profile with a trial's limit and times.
fn profile_for(profile: &Profile, trial: Trial, times: Times) -> Result<Profile, Failure> {
    let mut changed = profile.clone();
    let is_baseline = trial.run_type == crate::search::RunType::Baseline;
    if !is_baseline {
        set_limit(&mut changed, u32::try_from(trial.qos).unwrap_or(u32::MAX))?;
    }
    let warm_up_s = if trial.is_search { times.warm_up_s.min(SEARCH_WARM_UP_S) } else { times.warm_up_s };
    Times { warm_up_s, ..times }.apply(&mut changed);
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::RunType;

    #[test]
    fn the_matrix_is_vmfleets() {
        let all = core().unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "General4KWriteRatio0",
                "General4KWriteRatio10",
                "General4KWriteRatio30",
                "Peak4kRead",
                "Vdi",
                "Sql"
            ]
        );
        let general = &all[1].profile.time_spans[0].targets[0];
        assert_eq!((general.write_percent, general.random_percent, general.request_count), (10, 50, 32));
        assert!(general.distribution.is_some());
        assert_eq!(all[3].profile.time_spans[0].targets[0].max_offset_bytes, 5 << 30);
        assert!(!all[3].is_sweep);
        assert_eq!((all[5].template, all[5].running_percent, all[5].limits), ("A4v2", 25, CUTOFFS));
    }

    #[test]
    fn each_template_is_measured_at_100_and_at_70_percent() {
        let options = |words: &[&str]| {
            use clap::Parser;
            let words = ["fleet", "measure"].iter().chain(words);
            match args::Cli::parse_from(words).command {
                args::Command::Measure(options) => options,
                _ => unreachable!("measure was parsed"),
            }
        };
        let mut state = crate::state::tests::state();
        assert_eq!(alignments(&options(&[]), &state), [100, 70]);
        assert_eq!(alignments(&options(&["--workload", "peak"]), &state), [100]);
        assert_eq!(alignments(&options(&["--alignment", "50"]), &state), [50]);
        let all = core().unwrap();
        let passes = passes(&all, &[100, 70]);
        let order: Vec<(&str, u32)> =
            passes.iter().map(|(one, percent)| (one.name.as_str(), *percent)).collect();
        assert_eq!((order.len(), order[4], order[5]), (12, ("Vdi", 100), ("General4KWriteRatio0", 70)));
        assert_eq!(order[10..], [("Sql", 100), ("Sql", 70)]);
        state.nodes.truncate(1);
        assert_eq!(alignments(&options(&[]), &state), [100]);
    }

    #[test]
    fn a_trial_sets_limit_and_warm_up() {
        let peak = profile_of("peak", &Shape::default()).unwrap();
        let trial = Trial { run_type: RunType::Default, qos: 700, is_search: true };
        let changed = profile_for(&peak, trial, Times::default()).unwrap();
        assert_eq!((limit_iops(&changed), changed.time_spans[0].warm_up_s), (700, 30));
        let sql = profile_of("sql", &Shape::default()).unwrap();
        let baseline = Trial { run_type: RunType::Baseline, qos: 0, is_search: false };
        let changed = profile_for(&sql, baseline, Times::default()).unwrap();
        assert_eq!((limit_iops(&changed), changed.time_spans[0].warm_up_s), (6300, 300));
    }
}

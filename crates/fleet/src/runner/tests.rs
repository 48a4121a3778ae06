//! Jobs as machines get them: which files, by which address, how many processes.

use super::*;
use crate::state::tests::state;
use crate::workload::named;

fn plan<'a>(state: &'a State, profile: &'a Profile) -> Plan<'a> {
    Plan {
        state,
        nodes: vec![0, 1],
        profile,
        transport: Transport::Tcp,
        alignment_percent: 100,
        label: "test".into(),
        credentials: None,
        lead: None,
        preparation: Duration::ZERO,
    }
}

fn jobs_of(plan: &Plan<'_>) -> BTreeMap<Option<String>, Job> {
    jobs(plan, plan.profile, 5, 60_000).unwrap()
}

#[test]
fn each_worker_has_a_file_of_its_own_on_its_nodes_share() {
    let (state, profile) = (state(), named("peak").unwrap().profile());
    let jobs = jobs_of(&plan(&state, &profile));
    let job = &jobs[&None];
    let targets: Vec<&String> = job.processes.iter().flat_map(|process| &process.targets).collect();
    assert_eq!(targets.len(), 88);
    assert_eq!(targets[0], "smb://127.0.0.1:4455/fleet-one/worker-0001.dat");
    assert_eq!(targets[87], "smb://127.0.0.1:4455/fleet-two/worker-0044.dat");
    let mut unique = targets.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 88);
    assert!(job.processes.len() <= PROCESSES_MAX as usize, "{}", job.processes.len());
    for process in &job.processes {
        let mut profile = diskspd::xml::read_profile(job.profiles[process.profile].as_bytes()).unwrap();
        profile.fill_templates(&process.targets).unwrap();
        assert_eq!(profile.validate().errors, Vec::<String>::new());
    }
    assert_eq!(job.profiles.len(), 1, "processes of as many workers share a profile");
}

#[test]
fn seven_hundred_and_four_workers_are_few_processes_or_as_many_as_asked_for() {
    let profile = named("read-4k").unwrap().profile();
    let mut state = state();
    let of = |number: usize| crate::state::tests::node(&format!("n{number}"));
    state.nodes = (0..16).map(of).collect();
    let all = |state: &State| {
        let plan = Plan { nodes: (0..16).collect(), ..plan(state, &profile) };
        jobs(&plan, &profile, 0, 1).unwrap().remove(&None).unwrap().processes
    };
    let processes = all(&state);
    assert_eq!(processes.iter().map(|process| process.targets.len()).sum::<usize>(), 704);
    assert_eq!(processes.len(), 64);
    state.workers_per_process = 1;
    assert_eq!(all(&state).len(), 704);
}

#[test]
fn rdma_goes_to_the_address_of_smb_direct() {
    let (mut state, profile) = (state(), named("peak").unwrap().profile());
    let by_rdma = |state: &State| {
        let plan = Plan { transport: Transport::Rdma, ..plan(state, &profile) };
        jobs(&plan, &profile, 5, 1)
    };
    let job = by_rdma(&state).unwrap().remove(&None).unwrap();
    assert!(job.processes[0].targets[0].starts_with("smb://127.0.0.1:5445/"));
    assert_eq!(job.options, ["--smb-transport=rdma"]);
    let of_auto = |state: &State| {
        let plan = Plan { transport: Transport::Auto, ..plan(state, &profile) };
        jobs(&plan, &profile, 5, 1).unwrap().remove(&None).unwrap()
    };
    assert_eq!(of_auto(&state).options, ["--smb-transport=rdma"], "all nodes have SMB Direct");
    state.nodes[1].rdma = None;
    assert_eq!(of_auto(&state).options, ["--smb-transport=tcp"], "all come alike");
    assert!(by_rdma(&state).unwrap_err().to_string().contains("no address for SMB Direct"));
}

#[test]
fn workers_away_from_their_volume_ask_the_next_node_of_a_cluster() {
    let (mut state, profile) = (state(), named("peak").unwrap().profile());
    state.nodes[1].smb = "127.0.0.2:4455".into();
    state.workers_per_process = 1;
    let of = |state: &State| {
        let plan = Plan { alignment_percent: 70, ..plan(state, &profile) };
        jobs(&plan, &profile, 5, 1)
    };
    assert!(of(&state).unwrap_err().to_string().contains("cluster"));
    state.is_cluster = true;
    let job = of(&state).unwrap().remove(&None).unwrap();
    let away = job.processes.iter().filter(|process| process.node == "one");
    let away =
        away.filter(|process| process.targets[0].starts_with("smb://127.0.0.2:4455/fleet-one/")).count();
    // 70 % of 44 are 31, rounded up.
    assert_eq!(away, 13);
}

#[test]
fn a_nodes_machine_is_reached_by_ssh_without_questions() {
    let (mut state, profile) = (state(), named("peak").unwrap().profile());
    state.nodes[1].host = Some("root@two.example".into());
    let jobs = jobs_of(&plan(&state, &profile));
    assert_eq!(jobs.keys().cloned().collect::<Vec<_>>(), [None, Some("root@two.example".into())]);
    let command = command(Some("root@two.example")).unwrap();
    let words: Vec<&std::ffi::OsStr> = command.get_args().collect();
    assert_eq!(command.get_program(), "ssh");
    assert_eq!(words[words.len() - 3..], ["--", "root@two.example", "fleet worker"]);
    assert!(words.contains(&std::ffi::OsStr::new("BatchMode=yes")));
    // Neither the password nor anything else of the job is on the command line.
    let local = super::command(None).unwrap();
    assert_eq!(local.get_args().collect::<Vec<_>>(), ["worker"]);
}

#[test]
fn a_pool_of_threads_and_a_path_of_its_own_are_refused() {
    let mut profile = named("peak").unwrap().profile();
    profile.time_spans[0].thread_count = 4;
    assert!(for_workers(&profile, 1).is_ok());
    assert!(for_workers(&profile, 2).unwrap_err().to_string().contains("--workers-per-process 1"));
    let mut profile = named("peak").unwrap().profile();
    profile.time_spans[0].targets[0].path = "/etc/passwd".into();
    assert!(for_workers(&profile, 1).is_err());
    profile.time_spans.clear();
    assert!(times_of(&profile).is_err());
}

#[test]
fn answers_end_at_the_first_that_is_none() {
    let text = format!(
        "{}nonsense\n{}",
        job::line(&Answer::Progress(BTreeMap::new())),
        job::line(&Answer::Failed("late".into()))
    );
    let mut given = Vec::new();
    read_answers(text.as_bytes(), |answer| {
        given.push(answer);
        true
    });
    assert_eq!(given.len(), 2);
    assert!(matches!(&given[1], Answer::Failed(why) if why.contains("not understood")));
}

#[test]
fn parts_of_two_machines_add_up_to_one_outcome() {
    let part = |iops, us| {
        let node = job::NodeDone {
            workers: 22,
            read: job::Rate { iops, bytes_per_s: iops * 4096.0 },
            read_latencies: vec![(us, 100)],
            ..job::NodeDone::default()
        };
        Done {
            nodes: [("one".to_owned(), node)].into(),
            cpu_percent: Some(iops / 100.0),
            transports: vec!["TCP".into()],
            notes: vec!["held".into()],
        }
    };
    let outcome = outcome(vec![part(1000.0, 100), part(3000.0, 300)], BTreeMap::new()).unwrap();
    assert_eq!((outcome.nodes.len(), outcome.nodes[0].workers, outcome.iops()), (1, 44, 4000.0));
    assert_eq!((outcome.cpu_percent, outcome.transport.as_str()), (Some(20.0), "TCP"));
    assert_eq!(outcome.read_latency().p99_ms, Some(0.3));
    assert_eq!((outcome.notes.len(), outcome.volume.clone()), (1, None));
}

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
        // Lives as long as the test's process.
        owners: Box::leak(Box::new(Owners::as_made(state, &[0, 1]))),
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
        let nodes: Vec<usize> = (0..16).collect();
        let owners = Owners::as_made(state, &nodes);
        let plan = Plan { nodes, owners: &owners, ..plan(state, &profile) };
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
fn workers_away_from_their_volume_run_at_another_node_and_ask_its_owner() {
    let (mut state, profile) = (state(), named("peak").unwrap().profile());
    state.nodes[1].smb = "127.0.0.2:4455".into();
    state.nodes[1].host = Some("two.example".into());
    let of = |nodes: Vec<usize>| {
        let owners = Owners::as_made(&state, &nodes);
        let plan = Plan { nodes, alignment_percent: 70, owners: &owners, ..plan(&state, &profile) };
        jobs(&plan, &profile, 5, 1)
    };
    assert!(of(vec![0]).unwrap_err().to_string().contains("takes two nodes"));
    let jobs = of(vec![0, 1]).unwrap();
    let targets = |host: Option<&str>, node: &str| {
        let processes = &jobs[&host.map(str::to_owned)].processes;
        assert!(processes.iter().all(|process| process.node == node), "a machine runs its node's workers");
        processes.iter().flat_map(|process| process.targets.clone()).collect::<Vec<String>>()
    };
    for (host, node, own, other) in [
        (None, "one", "smb://127.0.0.1:4455/fleet-one/", "smb://127.0.0.2:4455/fleet-two/"),
        (Some("two.example"), "two", "smb://127.0.0.2:4455/fleet-two/", "smb://127.0.0.1:4455/fleet-one/"),
    ] {
        let targets = targets(host, node);
        let count = |prefix: &str| targets.iter().filter(|target| target.starts_with(prefix)).count();
        // 30 % of 44 are 13.
        assert_eq!((count(own), count(other)), (31, 13), "{node}");
        assert!(targets.contains(&format!("{other}worker-0044.dat")), "the last ones move");
    }
}

#[test]
fn nodes_of_a_cluster_that_have_one_share_keep_their_files_apart() {
    let mut state = state();
    let file = |state: &State| data_file(state, &state.nodes[1], 3);
    state.is_cluster = true;
    assert_eq!(file(&state), "worker-0004.dat");
    state.nodes.iter_mut().for_each(|node| node.share = "bench".into());
    assert_eq!(file(&state), "worker-two-0004.dat");
    state.is_cluster = false;
    assert_eq!(file(&state), "worker-0004.dat", "each server has a share of that name");
}

#[test]
fn workers_on_one_machine_are_told_of_as_having_one_way() {
    let (mut state, profile) = (state(), named("peak").unwrap().profile());
    let note = |state: &State, alignment_percent| {
        note_of_placement(&Plan { alignment_percent, ..plan(state, &profile) })
    };
    assert_eq!(note(&state, 100), None);
    assert!(note(&state, 70).unwrap().contains("run on one machine"));
    state.nodes[0].host = Some("one.example".into());
    assert!(note(&state, 70).unwrap().contains("13 of each node's 44 workers"));
    assert!(!note(&state, 70).unwrap().contains("run on one machine"));
}

#[test]
fn a_volume_that_moved_is_asked_for_at_its_owner() {
    let (mut state, profile) = (state(), named("peak").unwrap().profile());
    let mut moved = state.clone();
    moved.nodes[0].smb = "127.0.0.7:4455".into();
    moved.nodes[0].rdma = None;
    let owners = Owners::as_made(&moved, &[0, 1]);
    let of = |state: &State, transport| {
        jobs(&Plan { transport, owners: &owners, ..plan(state, &profile) }, &profile, 5, 1)
    };
    let job = of(&state, Transport::Tcp).unwrap().remove(&None).unwrap();
    assert_eq!(job.processes[0].targets[0], "smb://127.0.0.7:4455/fleet-one/worker-0001.dat");
    assert_eq!(of(&state, Transport::Auto).unwrap()[&None].options, ["--smb-transport=tcp"]);
    assert!(of(&state, Transport::Rdma).is_err());
    state.nodes.truncate(1);
    let nobody = Owners::default();
    let plan = Plan { nodes: vec![0], owners: &nobody, ..plan(&state, &profile) };
    assert!(jobs(&plan, &profile, 5, 1).unwrap_err().to_string().contains("not known which server"));
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
fn machines_are_part_of_the_job_and_get_time_to_boot() {
    let (mut state, profile) = (state(), named("peak").unwrap().profile());
    let lead = usual_lead(&plan(&state, &profile));
    state.microvms = Some(crate::state::Microvms::default());
    assert_eq!(jobs_of(&plan(&state, &profile))[&None].microvms, state.microvms);
    let by_kvm = usual_lead(&plan(&state, &profile));
    assert!(by_kvm >= lead + LEAD_OF_BOOT, "{by_kvm:?}");
    state.microvms = Some(crate::state::Microvms { accelerator: Accelerator::Tcg, ..Default::default() });
    assert!(usual_lead(&plan(&state, &profile)) > by_kvm);
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

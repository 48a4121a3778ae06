//! The command line, by what DiskSpd says to it.

use super::{parse, usage};
use crate::profile::{
    Affinity, CacheMode, Distribution, GroupProcessor, Profile, ResultFormat, Target, Throughput,
    WriteContent, WriteThrough,
};

fn line(text: &str) -> Result<super::CommandLine, String> {
    let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    parse(&arguments, 77).map_err(|error| error.0)
}

fn profile(text: &str) -> Profile {
    line(text).expect("is a right command line").profile
}

fn target(text: &str) -> Target {
    profile(text).time_spans[0].targets[0].clone()
}

fn refused(text: &str) -> String {
    line(text).expect_err("is a wrong command line")
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let profile = profile("file");
    let span = &profile.time_spans[0];
    assert_eq!((span.duration_s, span.warm_up_s, span.cool_down_s, span.bucket_ms), (10, 5, 0, 1000));
    let target = &span.targets[0];
    assert_eq!((target.block_bytes, target.request_count, target.threads), (65_536, 2, 1));
    assert_eq!(
        (target.cache, target.write_through, target.write_percent),
        (CacheMode::Cached, WriteThrough::Off, 0)
    );
    assert_eq!(span.affinity, Affinity::RoundRobin);
}

#[test]
fn the_seeds_command_lines_are_taken_unaltered() {
    let one = profile("-b4K -w100 -r -o64 -W5 -C5 -d30 -t32 -Sh testfile");
    let (span, only) = (&one.time_spans[0], &one.time_spans[0].targets[0]);
    assert_eq!((span.warm_up_s, span.cool_down_s, span.duration_s), (5, 5, 30));
    assert_eq!((only.block_bytes, only.write_percent, only.random_percent), (4096, 100, 100));
    assert_eq!((only.request_count, only.threads), (64, 32));
    assert_eq!((only.cache, only.write_through), (CacheMode::DisableOsCache, WriteThrough::On));

    let two = target_of_talpey();
    assert_eq!((two.create_bytes, two.stride_bytes, two.interlocked), (Some(20 << 20), Some(4096), true));
    assert!(two.hint_random);
    assert_eq!(two.path, r"\\server\share\file");

    assert_eq!(target("-t1 -b4k -r -o32 -w0 file").request_count, 32);
    let fleet = profile("-Z20M -z -h -t1 -o8 -b4k -r4k -w10 -W60 -C30 -d1800 -D -L file");
    assert_eq!(fleet.time_spans[0].random_seed, 77);
    assert_eq!(
        fleet.time_spans[0].targets[0].content,
        WriteContent::Source { size_bytes: 20 << 20, file: None }
    );
    profile("-n -h -t8 -o20 -b4k -r4k -w30 -W10 -d60 -C10 -D -L testfile1.dat");
}

fn target_of_talpey() -> Target {
    target(r"-b64K -c20M -d30 -L -o1 -si4k -t8 -w100 -h -fr \\server\share\file")
}

#[test]
fn sizes_in_blocks_use_the_block_size_wherever_it_stands() {
    assert_eq!(target("-s2b -B1b -b4K file").stride_bytes, Some(8192));
    assert_eq!(target("-s2b -B1b -b4K file").base_offset_bytes, 4096);
}

#[test]
fn wrong_sizes_are_named_as_diskspd_names_them() {
    assert!(
        refused("-c5Q file")
            .starts_with("Invalid size 'Q'. Valid: K - KiB, M - MiB, G - GiB, T - TiB, B - block")
    );
    assert!(refused("-c99999999999999T file").starts_with("Overflow applying multipler 'T'"));
    assert!(refused("-c5K9 file").starts_with("Unrecognized characters after size specification"));
    assert!(refused("-c file").starts_with("Invalid integer"));
    assert!(refused("-b4G file").contains("ERROR: invalid block size passed to -b"));
    assert!(refused("-b0 file").contains("ERROR: invalid block size passed to -b"));
}

#[test]
fn unknown_and_misused_options_are_told_apart() {
    assert_eq!(refused("-k file"), "ERROR: invalid option: '-k'");
    assert_eq!(refused("--what file"), "ERROR: invalid option: '--what'");
    for argument in
        ["-d0", "-dx", "-t0", "-I4", "-Nx", "-o", "-yq", "-ys", "-fz", "-f", "-eX", "-Lx", "-rs0", "-rs101"]
    {
        let said = refused(&format!("{argument} file"));
        assert!(said.ends_with(&format!("ERROR: incorrectly provided option: '{argument}'")), "{said}");
    }
    assert_eq!(refused("-b4K"), "ERROR: need to provide at least one filename");
    assert_eq!(refused("file -b4K"), "ERROR: parameters (-b4K) must come before targets on the command line");
}

#[test]
fn the_slash_of_a_path_is_not_taken_for_a_switch() {
    assert_eq!(target("-b4K /mnt/file").path, "/mnt/file");
}

#[test]
fn write_ratios_are_needed_and_bounded() {
    assert!(refused("-w file").starts_with("ERROR: no write ratio passed to -w"));
    assert!(
        refused("-w101 file")
            .starts_with("ERROR: write ratio passed to -w must be between 0 and 100 (percent)")
    );
    assert_eq!(target("-w30 file").write_percent, 30);
}

#[test]
fn cache_modes_combine_once() {
    let set = |text: &str| (target(text).cache, target(text).write_through, target(text).memory_mapped);
    assert_eq!(set("-S file"), (CacheMode::DisableOsCache, WriteThrough::Off, false));
    assert_eq!(set("-Suw file"), (CacheMode::DisableOsCache, WriteThrough::On, false));
    assert_eq!(set("-Swu file"), (CacheMode::DisableOsCache, WriteThrough::On, false));
    assert_eq!(set("-Srw file"), (CacheMode::DisableLocalCache, WriteThrough::On, false));
    assert_eq!(set("-Srm file"), (CacheMode::DisableLocalCache, WriteThrough::Off, true));
    assert_eq!(set("-Smw file"), (CacheMode::Cached, WriteThrough::On, true));
    for illegal in ["-Sum", "-Smu", "-Shm", "-Sbu", "-Sww", "-Sh -Sw", "-h -Sh", "-Sq"] {
        assert!(refused(&format!("{illegal} file")).starts_with("ERROR"), "{illegal}");
    }
    assert!(refused("-Sww file").starts_with("ERROR -Sw conflicts with earlier specification of"));
}

#[test]
fn conflicts_stop_the_run() {
    for (text, said) in [
        ("-n -a0 file", "ERROR: -n and -a parameters cannot be used together"),
        ("-F4 -t2 file", "ERROR: -F and -t parameters cannot be used together"),
        ("-g10 -x file", "ERROR: -g throughput control cannot be used with -x completion routines"),
        ("-F2 -O4 -g10 file", "ERROR: -g throughput control cannot be used with -O"),
        ("-i5 file", "ERROR: need to specify -j<think time> with -i<burst size>"),
        ("-T4K -t2 -r file", "ERROR: -T conflicts with -r"),
        ("-T4K file", "ERROR: -T can only be used with more than one thread per target"),
        ("-si -r file", "ERROR"),
        ("-p -r file", "ERROR: -p conflicts with -r"),
        ("-Z4K -b64K file", "ERROR: custom write buffer (-Z) is smaller than the block size"),
        ("-x -Sm file", "ERROR: completion routines (-x) can't be used with memory mapped IO (-Sm)"),
        (
            "-Nv file",
            "ERROR: memory mapped flush mode (-N) can only be specified with memory mapped IO (-Sm)",
        ),
        ("-f4K -B8K file", "ERROR: maximum file offset (-f) must be greater than base file offset (-B)"),
        ("-f1M -B8K:1M file", "ERROR: -f<size> conflicts with -B<base>:<length>"),
        ("-Xa -Xb", "ERROR: multiple XML profiles specified (-X)"),
        ("-Xa -b4K", "ERROR: invalid XML profile specification; parameter -b4K not compatible with -X"),
        ("-Rjson file", "ERROR: unspecified results format -R: use [p]<text|xml>"),
        ("*1", "ERROR: template target was not given on the command line"),
    ] {
        assert!(refused(text).starts_with(said), "{text}: {}", refused(text));
    }
}

#[test]
fn strange_but_possible_profiles_are_warned_about() {
    let warnings = |text: &str| profile(text).validate().warnings.join("; ");
    assert!(warnings("-si file").contains("single-threaded test, -si ignored"));
    assert!(warnings("-t4 file").contains("target access pattern will not be sequential, consider -si"));
    assert!(warnings("-p -o1 file").contains("-p"));
    assert_eq!(warnings("-t4 -r file"), "");
}

#[test]
fn affinity_lists_name_groups_and_their_mistakes_are_pointed_at() {
    let assigned = |text: &str| match &profile(text).time_spans[0].affinity {
        Affinity::Assigned(list) => list.iter().map(|one| (one.group, one.processor)).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(assigned("-a0,2,g1,3 -a5 file"), [(0, 0), (0, 2), (1, 3), (0, 5)]);
    assert_eq!(profile("-ag file").time_spans[0].affinity, Affinity::RoundRobin);
    assert_eq!(refused("-a0, file"), "ERROR: incomplete affinity specification");
    assert_eq!(refused("-a64 file"), "ERROR: CPU 64 is out of range");
    assert_eq!(refused("-ag70000,1 file"), "ERROR: group 70000 is out of range");
    let pointed = refused("-a0,x file");
    assert!(pointed.starts_with("ERROR: syntax error parsing affinity at highlighted character\n-a0,x\n"));
    assert_eq!(pointed.lines().last().map(|caret| caret.find('^')), Some(Some(4)));
    let _ = GroupProcessor { group: 0, processor: 0 };
}

#[test]
fn distributions_are_read_and_checked() {
    assert_eq!(
        target("-rdpct90/10:0/10:5/20 file").distribution,
        Some(Distribution::Percent(vec![(90, 10), (0, 10), (5, 20)]))
    );
    assert_eq!(
        target("-rdabs90/10G:5/20G file").distribution,
        Some(Distribution::Absolute(vec![(90, 10 << 30), (5, 20 << 30)]))
    );
    assert!(refused("-rdpct90/60:20/60 file").contains("110%"));
    assert!(refused("-rdxyz1/1 file").contains("incorrectly provided option"));
}

#[test]
fn throttles_hints_events_and_formats_are_read() {
    assert_eq!(target("-g100i file").throughput, Some(Throughput::Iops(100)));
    assert_eq!(target("-g100 file").throughput, Some(Throughput::BytesPerMillisecond(100)));
    let hints = target("-frs -ft file");
    assert!(hints.hint_random && hints.hint_sequential && hints.temporary);
    assert_eq!(target("-f1M file").max_offset_bytes, 1 << 20);
    assert_eq!(target("-B1M:2M file").max_offset_bytes, 3 << 20);
    let events = line("-ysgo -yfdone -yrnow -ypstop file").expect("is right").events;
    assert_eq!((events.signal_start.as_deref(), events.stop.as_deref()), (Some("go"), Some("stop")));
    assert_eq!(line("-yego").expect("needs no target").events.set.as_deref(), Some("go"));
    assert_eq!(profile("-Rxml file").format, ResultFormat::Xml);
    assert!(profile("-Rptext file").profile_only);
    assert_eq!(profile("-P file").progress, 65_536);
    assert!(profile("-eDISK_IO -ec file").trace.is_some_and(|trace| trace.disk_io));
}

#[test]
fn every_option_of_the_table_has_a_line_in_the_usage_text() {
    let text = usage("diskspd", "version 2.2.0 (2024/6/3)");
    for option in super::OPTIONS {
        assert!(text.contains(option.form));
    }
}

#[test]
fn the_manual_page_has_an_entry_for_every_option() {
    let text = super::manual("2.2.0");
    assert!(text.starts_with(".TH DISKSPD 1"));
    for option in super::OPTIONS {
        let form = option.form.replace('-', "\\-");
        assert!(text.contains(&format!("\n.TP\n\\fB{form}\\fR\n")), "{form}");
    }
    assert!(text.contains(r"\e\eserver\eshare\epath"));
}

mod properties {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_argument_does_more_than_be_refused(arguments in proptest::collection::vec("-?[-a-zA-Z0-9:,/=.?*#]{0,12}", 0..5)) {
            let _ = super::super::parse(&arguments, 1);
        }
    }
}

#[test]
fn an_rdma_device_is_named_and_has_to_be() {
    let smb = |text| line(text).expect("is a right command line").smb;
    assert_eq!(smb("file").rdma_device, None);
    assert_eq!(smb("--smb-rdma-device siw0 file").rdma_device.as_deref(), Some("siw0"));
    assert_eq!(smb("--smb-rdma-device=auto file").rdma_device.as_deref(), Some("auto"));
    assert!(refused("--smb-rdma-device").contains("--smb-rdma-device"));
}

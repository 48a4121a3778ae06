//! Profiles there and back, results against the documented layout, strangers' documents.

use super::{profile, read_profile, results};
use crate::cli::parse;
use crate::profile::{
    Affinity, CacheMode, Distribution, FlushMode, GroupProcessor, Precreate, Priority, Profile, ResultFormat,
    Target, Throughput, TimeSpan, Trace, TraceClock, WriteContent, WriteThrough,
};
use crate::report::Report;
use crate::statistics::{
    Direction, Intervals, ProcessorPlace, ProcessorUse, SpanResult, SystemInformation, TargetResult,
};
use proptest::prelude::*;

fn of_line(arguments: &str) -> Profile {
    let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    parse(&words, 0).expect("is right").profile
}

#[test]
fn a_profile_has_the_documented_layout() {
    let got = profile(&of_line("testfile.dat"), 0);
    assert_eq!(got, include_str!("../../tests/golden/profile.xml"), "{got}");
    let got = profile(
        &of_line(
            "-b4K -r -rs50 -rdpct95/5:4/10 -Suw -Z20M -g100i -o8 -t2 -w30 -D500 -L -a0,1 -c1G -f512M -j5 -i7 testfile.dat",
        ),
        0,
    );
    assert_eq!(got, include_str!("../../tests/golden/profile-full.xml"), "{got}");
}

#[test]
fn results_have_the_documented_layout() {
    let mut read = Direction { bytes: 8192, operations: 2, ..Direction::default() };
    read.intervals = Intervals::new(1000, 2000, true);
    for (at_ms, latency_us) in [(100, 200), (1500, 400)] {
        read.latency.record(latency_us * 1000);
        read.intervals.record(at_ms * 1_000_000, latency_us * 1000);
    }
    let mut write = Direction { bytes: 4096, operations: 1, ..Direction::default() };
    write.intervals = Intervals::new(1000, 2000, true);
    write.latency.record(1_000_000);
    write.intervals.record(0, 1_000_000);
    let target =
        TargetResult { path: "a&b.dat".into(), file_bytes: 1 << 20, read, write, ..TargetResult::default() };
    let processor =
        ProcessorUse { user_percent: 30.0, kernel_percent: 25.0, idle_percent: 45.0, ..Default::default() };
    let span = SpanResult {
        seconds: 2.0,
        thread_count: 1,
        processors: vec![processor],
        threads: vec![vec![target]],
        waits: vec![Default::default()],
        ..SpanResult::default()
    };
    let system = SystemInformation {
        computer_name: "server".into(),
        start_time: "2024/06/03 10:00:00 UTC".into(),
        places: vec![ProcessorPlace::default()],
        power_scheme: "performance".into(),
        tool_version: "2.2.0".into(),
        tool_date: "2024/6/3".into(),
        ..SystemInformation::default()
    };
    let profile = of_line("-L -D -w33 -d2 -W0 -Rxml a&b.dat");
    let report = Report {
        command_line: "",
        profile: &profile,
        system: &system,
        spans: &[span],
        style: Default::default(),
    };
    let got = results(&report);
    assert_eq!(got, include_str!("../../tests/golden/results.xml"), "{got}");
}

#[test]
fn latency_buckets_stand_where_fleets_look_for_them() {
    let names: Vec<String> = super::results::percentiles().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 108);
    assert_eq!((&names[50][..], &names[90][..], &names[99][..]), ("50", "90", "99"));
    assert_eq!(
        names[100..],
        ["99.9", "99.99", "99.999", "99.9999", "99.99999", "99.999999", "99.9999999", "100"]
    );
}

#[test]
fn an_interrupted_span_says_so_instead_of_figures() {
    let profile = of_line("-Rxml file");
    let report = Report {
        command_line: "",
        profile: &profile,
        system: &SystemInformation::default(),
        spans: &[SpanResult::default()],
        style: Default::default(),
    };
    let got = results(&report);
    assert!(got.contains("<Error>The test was interrupted before the measurements began."), "{got}");
    assert!(!got.contains("TestTimeSeconds"));
}

#[test]
fn elements_come_in_any_order_and_utf_16_is_read() {
    let text = "<?xml version=\"1.0\"?>\r\n<Profile><TimeSpans><TimeSpan><Targets><Target><WriteRatio>25</WriteRatio>\
                <Path>a&amp;b&#x20;c</Path><Random>4096</Random></Target></Targets><Duration>3</Duration></TimeSpan></TimeSpans>\
                <!-- last --><ResultFormat>xml</ResultFormat></Profile>";
    let read = read_profile(text.as_bytes()).expect("is right");
    assert_eq!(read.format, ResultFormat::Xml);
    let target = &read.time_spans[0].targets[0];
    assert_eq!((target.path.as_str(), target.write_percent, target.random_percent), ("a&b c", 25, 100));
    let mut wide = vec![0xFF, 0xFE];
    text.encode_utf16().for_each(|unit| wide.extend(unit.to_le_bytes()));
    assert_eq!(read_profile(&wide), Ok(read));
}

#[test]
fn hostile_and_wrong_documents_are_refused() {
    let deep = "<a>".repeat(100) + &"</a>".repeat(100);
    let inside = |content: &str| {
        format!(
            "<Profile><TimeSpans><TimeSpan><Targets><Target><Path>x</Path>{content}</Target></Targets></TimeSpan></TimeSpans></Profile>"
        )
    };
    for (document, reason) in [
        (String::new(), "ends too early"),
        ("<Profile>".into(), "ends too early"),
        ("<Profile/><Profile/>".into(), "more than one root"),
        ("<Other/>".into(), "'Other', not 'Profile'"),
        ("<Profile><Nonsense/></Profile>".into(), "no element 'Nonsense'"),
        ("<!DOCTYPE x [<!ENTITY a \"b\">]><Profile/>".into(), "document type"),
        ("<Profile><Progress>&a;</Progress></Profile>".into(), "entity 'a'"),
        (deep, "too deep"),
        (inside("<BlockSize>0</BlockSize>"), "'BlockSize' cannot be '0'"),
        (inside("<BlockSize>99999999999</BlockSize>"), "'BlockSize' cannot be"),
        (inside("<WriteRatio>101</WriteRatio>"), "'WriteRatio' cannot be '101'"),
        (inside("<SequentialScan>yes</SequentialScan>"), "'SequentialScan' cannot be 'yes'"),
        (inside("<Throughput unit=\"XYZ\">5</Throughput>"), "unit of 'Throughput'"),
        (inside("<Distribution><Percent><Range>5</Range></Percent></Distribution>"), "no 'IO'"),
        (inside("<ThreadTargets><ThreadTarget/></ThreadTargets>"), "names no thread"),
        (inside("<Path></Path>"), "no path"),
    ] {
        let error = read_profile(document.as_bytes()).expect_err(&document).to_string();
        assert!(error.contains(reason), "{document}: {error}");
    }
    assert!(read_profile(&[0x80, 0x81]).is_err());
    assert!(read_profile(&vec![b' '; 5 << 20]).is_err(), "too long");
    let many = format!("<Profile>{}</Profile>", "<Progress>1</Progress>".repeat(100_001));
    assert!(read_profile(many.as_bytes()).is_err(), "too many elements");
}

/// Profiles with every element somewhere.
fn profiles() -> impl Strategy<Value = Profile> {
    let target = (
        (any::<[bool; 8]>(), 1u32..1 << 30, any::<u64>(), proptest::option::of(1u64..1 << 40)),
        (0u32..=100, 0u32..=100, 0usize..3, 0usize..4, 0usize..4, 0usize..3),
        (any::<[u32; 4]>(), any::<[u64; 3]>(), 1u32..1000, proptest::option::of(1u64..1 << 50)),
        (
            proptest::collection::vec((0u32..=100, any::<u64>()), 0..4),
            proptest::collection::vec((any::<u32>(), proptest::option::of(1u32..9)), 0..3),
            "[a-z<>&'\"\\\\][a-z \r\n<>&'\"\\\\/]{0,20}[a-z<>&]",
        ),
    )
        .prop_map(|(first, second, third, fourth)| {
            let (flags, block_bytes, base_offset_bytes, stride_bytes) = first;
            let (random_percent, write_percent, cache, flush, content, priority) = second;
            let (numbers, sizes, count, create_bytes) = third;
            let (ranges, thread_targets, path) = fourth;
            let distribution = match ranges.len() {
                0 => None,
                1 => Some(Distribution::Percent(ranges)),
                _ => Some(Distribution::Absolute(ranges)),
            };
            Target {
                path,
                block_bytes,
                stride_bytes: stride_bytes.filter(|bytes| *bytes != u64::from(block_bytes)),
                interlocked: flags[0],
                base_offset_bytes,
                max_offset_bytes: sizes[0],
                hint_sequential: flags[1],
                hint_random: flags[2],
                temporary: flags[3],
                large_pages: flags[4],
                request_count: count,
                random_percent,
                distribution,
                cache: [CacheMode::Cached, CacheMode::DisableOsCache, CacheMode::DisableLocalCache][cache],
                write_through: if flags[5] { WriteThrough::On } else { WriteThrough::Off },
                memory_mapped: flags[6],
                flush_mode: [
                    None,
                    Some(FlushMode::ViewOfFile),
                    Some(FlushMode::NonVolatileMemory),
                    Some(FlushMode::NonVolatileMemoryNoDrain),
                ][flush],
                content: match content {
                    0 => WriteContent::Sequential,
                    1 => WriteContent::Zero,
                    2 => WriteContent::Source { size_bytes: sizes[1], file: None },
                    _ => WriteContent::Source { size_bytes: sizes[1], file: Some("a<b".into()) },
                },
                burst_size: numbers[0],
                think_time_ms: numbers[1],
                throughput: match numbers[2] % 3 {
                    0 => None,
                    1 => Some(Throughput::Iops(numbers[2])),
                    _ => Some(Throughput::BytesPerMillisecond(numbers[2])),
                },
                threads: count,
                create_bytes,
                write_percent,
                parallel_async: flags[7],
                thread_stride_bytes: sizes[2],
                priority: [Priority::VeryLow, Priority::Low, Priority::Normal][priority],
                weight: count,
                thread_targets,
            }
        });
    let span = (
        (any::<[u32; 5]>(), 1u32..100_000, 1u32..100_000, any::<[bool; 4]>(), 0usize..3),
        proptest::collection::vec((any::<u16>(), 0u8..64), 1..5),
        proptest::collection::vec(target, 0..3),
    )
        .prop_map(|((numbers, duration_s, bucket_ms, flags, affinity), processors, targets)| {
            let assigned = processors.iter();
            let assigned =
                assigned.map(|(group, processor)| GroupProcessor { group: *group, processor: *processor });
            TimeSpan {
                duration_s,
                warm_up_s: numbers[0],
                cool_down_s: numbers[1],
                random_seed: numbers[2],
                thread_count: numbers[3],
                request_count: numbers[4],
                affinity: match affinity {
                    0 => Affinity::RoundRobin,
                    1 => Affinity::Disabled,
                    _ => Affinity::Assigned(assigned.collect()),
                },
                completion_routines: flags[0],
                measure_latency: flags[1],
                iops_std_dev: flags[2],
                bucket_ms,
                random_write_data: flags[3],
                targets,
            }
        });
    let trace = (any::<[bool; 9]>(), 0usize..3).prop_map(|(on, clock)| Trace {
        process: on[0],
        thread: on[1],
        image_load: on[2],
        disk_io: on[3],
        memory_page_faults: on[4],
        memory_hard_faults: on[5],
        network: on[6],
        registry: on[7],
        paged_memory: on[8],
        clock: [TraceClock::Performance, TraceClock::System, TraceClock::Cycles][clock],
    });
    (
        any::<[u32; 2]>(),
        any::<[bool; 3]>(),
        0usize..4,
        proptest::option::of(trace),
        proptest::collection::vec(span, 0..3),
    )
        .prop_map(|(numbers, flags, precreate, trace, time_spans)| Profile {
            progress: numbers[0],
            format: if flags[0] { ResultFormat::Xml } else { ResultFormat::Text },
            profile_only: false,
            verbose: flags[1],
            verbose_statistics: flags[2],
            experiment_flags: numbers[1],
            precreate: [
                None,
                Some(Precreate::UseMaxSize),
                Some(Precreate::OnlyConstantSizes),
                Some(Precreate::OnlyConstantOrZeroSizes),
            ][precreate],
            trace,
            time_spans,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_element_of_a_profile_goes_there_and_back(wanted in profiles()) {
        let text = profile(&wanted, 0);
        prop_assert_eq!(read_profile(text.as_bytes()), Ok(wanted), "{}", text);
    }

    #[test]
    fn any_profile_can_be_checked(wanted in profiles()) {
        let _ = wanted.validate();
    }

    #[test]
    fn no_bytes_do_more_than_be_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_profile(&bytes);
    }
}

#[test]
fn templates_are_filled_from_the_command_line_and_none_is_left() {
    let wanted = "-X/tmp/p.xml -d7 -W1 -C2 -z9 -Rxml first second";
    let words: Vec<String> = wanted.split_whitespace().map(str::to_owned).collect();
    let line = parse(&words, 0).expect("is right");
    let template = |paths: &[&str]| {
        let targets = paths.iter().map(|path| Target { path: (*path).into(), ..Target::default() });
        Profile {
            time_spans: vec![TimeSpan { targets: targets.collect(), ..TimeSpan::default() }],
            ..Profile::default()
        }
    };
    let mut profile = template(&["*2", "*1", "own", "*2"]);
    line.changes.apply(&mut profile);
    profile.fill_templates(&line.targets).expect("all are there");
    let span = &profile.time_spans[0];
    let paths: Vec<&str> = span.targets.iter().map(|target| target.path.as_str()).collect();
    assert_eq!(paths, ["second", "first", "own", "second"]);
    assert_eq!((span.duration_s, span.warm_up_s, span.cool_down_s, span.random_seed), (7, 1, 2, 9));
    assert_eq!(profile.format, ResultFormat::Xml);
    assert!(template(&["*1", "*3"]).fill_templates(&line.targets).is_err(), "*3 is not given");
    assert!(template(&["*0"]).fill_templates(&line.targets).is_err());
    assert!(template(&["*1"]).fill_templates(&line.targets).is_err(), "'second' is not used");
}

//! Reports against the documented layout, and statistics against the figures that were published with DiskSpd.

use super::{Report, text};
use crate::cli::{ReportStyle, parse};
use crate::engine::offsets::Offsets;
use crate::size;
use crate::statistics::SmbUse;
use crate::statistics::{
    Direction, Histogram, Intervals, ProcessorPlace, ProcessorUse, SpanResult, SystemInformation,
    TargetResult,
};
use proptest::prelude::*;
use std::sync::Arc;

fn system() -> SystemInformation {
    SystemInformation {
        computer_name: "server".into(),
        start_time: "2024/06/03 10:00:00 UTC".into(),
        processors: 1,
        cores: 1,
        groups: 1,
        nodes: 1,
        sockets: 1,
        power_scheme: "performance".into(),
        ..SystemInformation::default()
    }
}

fn report(arguments: &str, span: SpanResult) -> String {
    styled(arguments, span, ReportStyle::V2_2)
}

fn styled(arguments: &str, span: SpanResult, style: ReportStyle) -> String {
    let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    let profile = parse(&words, 0).expect("is right").profile;
    let command_line = format!("diskspd {arguments}");
    text(&Report { command_line: &command_line, profile: &profile, system: &system(), spans: &[span], style })
}

/// One thread that wrote 16 times 384 KiB at 0.119 ms.
fn written() -> SpanResult {
    let mut write = Direction { bytes: 6_291_456, operations: 16, ..Direction::default() };
    write.intervals = Intervals { bucket_ms: 1000, counts: vec![8, 8], ..Intervals::default() };
    for _ in 0..16 {
        write.latency.record(119_000);
    }
    let target =
        TargetResult { path: "testfile1.dat".into(), file_bytes: 10 << 20, write, ..TargetResult::default() };
    let processor =
        ProcessorUse { user_percent: 30.0, kernel_percent: 25.0, idle_percent: 45.0, ..Default::default() };
    SpanResult {
        seconds: 120.0,
        thread_count: 1,
        processors: vec![processor],
        threads: vec![vec![target]],
        ..SpanResult::default()
    }
}

#[test]
fn a_report_has_the_documented_layout() {
    let got = report("-L -D -w100 -r4K -n testfile1.dat", written());
    assert_eq!(got, include_str!("../../tests/golden/write.txt"), "{got}");
}

#[test]
fn sizes_are_shown_in_the_largest_unit_that_fits() {
    for (bytes, shown) in
        [(512, "512"), (65_536, "64KiB"), (1_610_612_736, "1.50GiB"), (1 << 40, "1TiB"), (0, "0")]
    {
        assert_eq!(size::display(bytes), shown);
    }
}

/// Seed 003: 2,008,242 operations of 64 KiB in 30.01 s were printed as 4182.43 "MB/s" and 66,918.86 I/O per s.
#[test]
fn the_published_figures_agree_with_each_other() {
    let bytes = 2_008_242u64 * 65_536;
    assert_eq!(bytes, 131_612_147_712);
    let seconds = 2_008_242.0 / 66_918.86;
    assert!((seconds - 30.010f64).abs() < 0.001);
    assert!((bytes as f64 / f64::from(1 << 20) / seconds - 4182.43).abs() < 0.01);
    // Little's law at 8 threads, one deep each.
    assert!((8.0f64 / 66_918.86 * 1000.0 - 0.1195).abs() < 0.0001);
}

#[test]
fn deviations_are_of_the_population() {
    let intervals =
        Intervals { bucket_ms: 500, counts: vec![2, 4, 4, 4, 5, 5, 7, 9], ..Intervals::default() };
    assert!((intervals.iops_std_dev() - 4.0).abs() < 1e-9);
    let mut histogram = Histogram::default();
    for ms in [2, 4, 4, 4, 5, 5, 7, 9] {
        histogram.record(ms * 1_000_000);
    }
    assert!((histogram.std_dev_ms().expect("has values") - 2.0).abs() < 1e-9);
    assert_eq!(histogram.mean_ms(), Some(5.0));
}

#[test]
fn a_percentile_is_the_first_value_with_enough_below() {
    let mut histogram = Histogram::default();
    for us in 1..=100u64 {
        histogram.record(us * 1000);
    }
    assert_eq!(histogram.percentile_ms(0.50), Some(0.050));
    assert_eq!(histogram.percentile_ms(0.99), Some(0.099));
    assert_eq!(histogram.percentile_ms(1.0), Some(0.100));
    assert_eq!(histogram.percentile_ms(0.999), Some(0.100));
    assert_eq!(Histogram::default().percentile_ms(0.5), None);
}

proptest! {
    #[test]
    fn the_histogram_is_within_a_thousandth_or_a_microsecond(
        mut latencies in proptest::collection::vec(prop_oneof![0u64..5_000_000, 0u64..100_000_000_000], 1..300),
        share in 0.0f64..1.0,
    ) {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        for (at, latency) in latencies.iter().enumerate() {
            if at % 2 == 0 { one.record(*latency) } else { two.record(*latency) }
        }
        one.merge(&two);
        latencies.sort_unstable();
        let wanted = ((share * latencies.len() as f64).ceil() as usize).clamp(1, latencies.len());
        let exact = latencies[wanted - 1] as f64 / 1e6;
        let got = one.percentile_ms(share).expect("has values");
        prop_assert!((got - exact).abs() <= (exact / 1000.0).max(0.001), "{got} for {exact}");
        prop_assert_eq!(one.count(), latencies.len() as u64);
        prop_assert_eq!(one.max_ms(), latencies.last().map(|last| *last as f64 / 1e6));
    }
}

#[test]
fn the_older_layout_is_there_on_demand() {
    let got = styled("-L -D -w100 -r4K -n testfile1.dat", written(), ReportStyle::V2_0_17);
    assert_eq!(got, include_str!("../../tests/golden/write-2.0.17.txt"), "{got}");
    for (bytes, shown) in [(10_240, "10240B"), (1 << 20, "1024KB"), (1 << 30, "1024MB"), (250 << 30, "250GB")]
    {
        assert_eq!(super::style::file_bytes(ReportStyle::V2_0_17, bytes), shown);
    }
}

/// Two sockets of one node each, two cores each of two threads; the second socket's are slower.
#[test]
fn where_processors_sit_is_told_on_machines_where_it_matters() {
    let place = |processor| ProcessorPlace {
        processor,
        socket: processor / 4,
        node: processor / 4,
        core: processor / 2,
        class: 1 - processor / 4,
    };
    let system = SystemInformation {
        processors: 8,
        cores: 4,
        nodes: 2,
        sockets: 2,
        heterogeneous: true,
        places: (0..8).map(place).collect(),
        ..system()
    };
    let processors = (0..8).map(|number| ProcessorUse {
        number,
        user_percent: f64::from(number),
        kernel_percent: 1.0,
        idle_percent: 99.0 - f64::from(number),
        ..Default::default()
    });
    let span = SpanResult { processors: processors.collect(), ..written() };
    let profile = parse(&["-w100".into(), "file".into()], 0).expect("is right").profile;
    let style = ReportStyle::V2_2;
    let got = text(&Report { command_line: "", profile: &profile, system: &system, spans: &[span], style });
    let table = got.split_once("thread count:\t\t1\n\n").expect("has the table").1;
    let table = table.split_once("\nTotal IO").expect("ends").0;
    assert_eq!(table, include_str!("../../tests/golden/processors.txt"), "{table}");
}

/// Five threads on two files of 100 KiB and one of 1 MiB.
#[test]
fn distributions_are_told_as_they_came_out_with_their_targets_and_threads() {
    let result = |path: &str, size_bytes: u64| {
        let words = ["-b4K", "-r", "-rdpct10/10:10/10:0/10", path].map(str::to_owned);
        let profile = parse(&words, 0).expect("is right").profile;
        let target = &profile.time_spans[0].targets[0];
        let offsets = Offsets::new(target, size_bytes, 0, 1, &Arc::default()).expect("fits");
        TargetResult { path: path.into(), distribution: offsets.ranges(), ..TargetResult::default() }
    };
    let (first, second) = (|| result("testfile.dat", 100 << 10), || result("testfile2.dat", 100 << 10));
    let threads = vec![vec![first()], vec![first()], vec![first()], vec![second()], vec![first()]];
    let mut got = String::new();
    super::distributions::block(&mut got, &threads);
    super::distributions::block(&mut got, &[vec![first()], vec![first(), result("large.dat", 1 << 20)]]);
    super::distributions::block(&mut got, &[vec![TargetResult::default()]]);
    assert_eq!(got, include_str!("../../tests/golden/distributions.txt"), "{got}");
}

/// Ranges behind the end of a target are left out, and the others' shares are of the rest.
#[test]
fn a_distribution_over_more_than_the_target_is_cut() {
    let words = ["-b4K", "-r", "-rdabs10/50k:20/10k:30/1G", "x"].map(str::to_owned);
    let profile = parse(&words, 0).expect("is right").profile;
    let target = &profile.time_spans[0].targets[0];
    let offsets = Offsets::new(target, 100 << 10, 0, 1, &Arc::default()).expect("fits");
    let shares: Vec<u32> = offsets.ranges().iter().map(|range| range.share).collect();
    assert_eq!(shares, [10, 20, 30]);
    let target = TargetResult { path: "x".into(), distribution: offsets.ranges(), ..TargetResult::default() };
    let mut got = String::new();
    super::distributions::block(&mut got, &[vec![target]]);
    for line in ["    16.7% of IO => [     0   ", "    33.3% of IO => [", "    50.0% of IO => ["] {
        assert!(got.contains(line), "{got}");
    }
    assert!(got.contains(" -    100KiB)\n"), "{got}");
}

#[test]
fn waits_are_told_only_where_asked_for() {
    let span = || SpanResult { waits: vec![Default::default()], ..written() };
    let got = report("-vs -w100 file", span());
    assert!(got.contains("\n\nWait Statistics\nthread |  CompletionWait |"), "{got}");
    assert!(!report("-w100 file", span()).contains("Wait Statistics"));
}

#[test]
fn smb_targets_have_a_block_of_their_own_behind_the_others() {
    let session = |cipher: Option<&str>| SmbUse {
        server: "filer".into(),
        is_rdma: cipher.is_none(),
        dialect: "3.1.1".into(),
        channels: 2,
        is_signed: false,
        cipher: cipher.map(str::to_owned),
        counters: smb_client::Counters {
            rdma_read_bytes: 1000,
            rdma_written_bytes: 20,
            smb_credit_stalls: 3,
            rdma_credit_stalls: 4,
            ..Default::default()
        },
        ..SmbUse::default()
    };
    let smb_sessions = vec![session(None), session(Some("AES-128-GCM")), session(None)];
    let span = SpanResult { smb_sessions, process_cpu_ns: 1_600_000, ..written() };
    let got = report("-L -w100 testfile1.dat", span);
    let block = got.split_once("\n\n\nSMB:\n").expect("has the block").1;
    assert_eq!(block, include_str!("../../tests/golden/smb.txt"), "{block}");
}

/// The reporter prints the seed's own row from the seed's counts: in the older layout's MB/s, which are MiB/s.
#[test]
fn the_published_row_comes_out_as_published() {
    let operations = 2_008_242u64;
    let write = Direction { bytes: operations * 65_536, operations, ..Direction::default() };
    let target = TargetResult { path: "file".into(), file_bytes: 20 << 20, write, ..TargetResult::default() };
    let seconds = 2_008_242.0 / 66_918.86;
    let span = SpanResult { seconds, thread_count: 8, threads: vec![vec![target]], ..SpanResult::default() };
    let got = styled("-b64K -o1 -si4k -t8 -w100 -h -fr file", span, ReportStyle::V2_0_17);
    assert!(got.contains("total:      131612147712 |      2008242 |    4182.43 |   66918.86\n"), "{got}");
    assert!(got.contains("actual test time:\t30.01s"), "{got}");
}

/// Seed 001: 704 machines, 32 outstanding each, 4 KiB reads; its rows and totals agree to their rounding.
#[test]
fn the_published_fleet_agrees_with_itself() {
    let (total, reads, writes) = (4_959_166u64, 4_958_800u64, 366u64);
    assert_eq!(reads + writes, total);
    let mb_per_s = (total * 4096) as f64 / 1e6;
    assert!((mb_per_s - 20_313.0).abs() < 1.0);
    assert!((mb_per_s / 20_244.0 - 1.0 - 0.0034).abs() < 0.0001, "counters were sampled apart");
    let at_guest_ms = f64::from(704 * 32) / total as f64 * 1000.0;
    assert!((at_guest_ms - 4.54).abs() < 0.01);
    // The volume layer's mean of 2.89 ms leaves 36 % above it.
    assert!(((at_guest_ms - 2.89) / at_guest_ms - 0.36).abs() < 0.01);
}

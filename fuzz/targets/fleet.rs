//! Inputs of `fleet` from files and other machines: result tables, descriptions, jobs, answers,
//! results, progress, and the parts of its machines.
#![no_main]

use diskspd::progress::ProgressLine;
use fleet::job::{Answer, Done, Job, Said};
use fleet::microvm::image;
use fleet::row;
use fleet::state::State;
use fleet::tsv::Table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(spans) = diskspd::xml::read_results(input) {
        assert!(spans.iter().all(|span| span.seconds.is_finite() && span.seconds >= 0.0));
    }
    let mut program = input.to_vec();
    image::trim(&mut program);
    assert!(program.len() <= input.len());
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(table) = Table::parse(text) {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let _ = row::measured(&table, &[]);
        let _ = row::outcome(&table, &[], &Some(Default::default()));
    }
    if let Ok(state) = State::parse(text) {
        assert!(state.running_workers() >= 1 && state.running_workers() <= state.workers_per_node);
    }
    let _ = fleet::nodes::parse(text);
    let _ = ProgressLine::parse(text);
    let _ = serde_json::from_str::<Job>(text);
    let answer = serde_json::from_str::<Answer>(text);
    let said = match serde_json::from_str::<Said>(text) {
        Ok(Said::Answer(answer)) => Ok(answer),
        _ => answer,
    };
    if let Ok(Answer::Done(done)) = said {
        for node in done.nodes.values() {
            let _ = fleet::job::histogram(&node.read_latencies);
        }
        let mut sum = Done::default();
        let _ = sum.add(done);
    }
    let _ = image::listed_libraries(text);
    let (dependencies, built_in) = text.split_once('|').unwrap_or((text, ""));
    let _ = image::ordered_modules(dependencies, built_in);
});

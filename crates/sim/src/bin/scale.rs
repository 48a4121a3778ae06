//! `scale NODES`: measures the costs of that many servers, in lines of `NAME VALUE`. `scale NODES
//! --operations N --writes PERCENT` runs operations alone, for a tool that counts instructions in
//! `measured_operations`. `cargo xtask scale` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (words.as_slice(), number(0)) {
        ([_], Some(nodes @ 2..=16)) => {
            let measured = sim::scale::measure(nodes as usize, sim::scale::Effort::WHOLE);
            for (name, value) in sim::scale::COLUMNS.iter().zip(measured.row()) {
                println!("{name} {value}");
            }
        }
        ([_, "--operations", _, "--writes", _], Some(nodes @ 2..=16)) => {
            let (Some(operations), Some(writes)) = (number(2), number(4)) else { return usage() };
            sim::scale::measure_operations(nodes as usize, operations, writes);
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: scale NODES [--operations N --writes PERCENT], 2 to 16 nodes");
    ExitCode::from(2)
}

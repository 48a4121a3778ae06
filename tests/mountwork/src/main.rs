//! File work on a mounted share, every byte verified: `mountwork fsx|writers|tree|verify|hold|want ...`.
//!
//! Runs in the QEMU guest on the Linux kernel client. Exit status 0 only when everything held; the first difference is printed with
//! the operations that led to it.

mod fsx;
mod locks;
mod random;
mod tree;
mod writers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: mountwork fsx FILE OPERATIONS SEED [direct|patient]
       mountwork writers FOLDER WRITERS MIB SEED
       mountwork tree FOLDER FILES SEED
       mountwork verify FOLDER FILES SEED
       mountwork hold FILE END
       mountwork want FILE END";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let result = match words[..] {
        ["fsx", file, operations, seed] => both(number(operations), number(seed))
            .and_then(|(operations, seed)| fsx::run(&PathBuf::from(file), operations, seed, false, false)),
        ["fsx", file, operations, seed, "direct"] => both(number(operations), number(seed))
            .and_then(|(operations, seed)| fsx::run(&PathBuf::from(file), operations, seed, true, false)),
        ["fsx", file, operations, seed, "patient"] => both(number(operations), number(seed))
            .and_then(|(operations, seed)| fsx::run(&PathBuf::from(file), operations, seed, false, true)),
        ["writers", folder, count, mib, seed] => both(both(number(count), number(mib)), number(seed))
            .and_then(|((count, mib), seed)| writers::run(&PathBuf::from(folder), count, mib, seed)),
        ["tree", folder, files, seed] => both(number(files), number(seed))
            .and_then(|(files, seed)| tree::make(&PathBuf::from(folder), files, seed)),
        ["verify", folder, files, seed] => both(number(files), number(seed))
            .and_then(|(files, seed)| tree::verify(&PathBuf::from(folder), files, seed)),
        ["hold", file, end] => locks::hold(Path::new(file), Path::new(end)),
        ["want", file, end] => locks::want(Path::new(file), Path::new(end)),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn both<A, B>(first: Result<A, String>, second: Result<B, String>) -> Result<(A, B), String> {
    Ok((first?, second?))
}

//! `Start-FleetSweep`: the cross product of lists of parameters, with VMFleet's labels of the runs.

use crate::workload::{Changes, Pattern, set_limit};
use diskspd::profile::Profile;

/// More runs than this are a slip of the keyboard.
pub const RUNS_MAX: usize = 10_000;

/// The lists that are swept; none may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    pub block_bytes: Vec<u32>,
    pub threads: Vec<u32>,
    pub requests: Vec<u32>,
    pub write_percent: Vec<u32>,
    pub patterns: Vec<Pattern>,
    /// Limits of a worker; `None`: not limited.
    pub iops: Vec<Option<u32>>,
    /// Percents of the workers that run where their volume is.
    pub alignment_percent: Vec<u32>,
    /// Suffix of each label.
    pub add_spec: String,
}

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepRun {
    pub block_bytes: u32,
    pub threads: u32,
    pub requests: u32,
    pub write_percent: u32,
    pub pattern: Pattern,
    pub iops: Option<u32>,
    pub alignment_percent: u32,
    /// Such as `b4t1o32w0pr`: unique in the sweep.
    pub label: String,
}

impl Sweep {
    /// All runs; the list named last changes fastest.
    ///
    /// # Errors
    /// A list is empty, or there are more than [`RUNS_MAX`] runs.
    pub fn expand(&self) -> Result<Vec<SweepRun>, String> {
        let lengths = [
            self.block_bytes.len(),
            self.threads.len(),
            self.requests.len(),
            self.write_percent.len(),
            self.patterns.len(),
            self.iops.len(),
            self.alignment_percent.len(),
        ];
        if lengths.contains(&0) {
            return Err("a list of the sweep is empty".into());
        }
        let count = lengths.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
        let Some(count) = count.filter(|count| *count <= RUNS_MAX) else {
            return Err(format!("the sweep has more than {RUNS_MAX} runs"));
        };
        Ok((0..count).map(|number| self.run(number)).collect())
    }

    fn run(&self, mut number: usize) -> SweepRun {
        // From the list that changes fastest to the slowest.
        let mut digit = |base: usize| {
            let digit = number % base;
            number /= base;
            digit
        };
        let alignment_percent = self.alignment_percent[digit(self.alignment_percent.len())];
        let iops = self.iops[digit(self.iops.len())];
        let pattern = self.patterns[digit(self.patterns.len())];
        let write_percent = self.write_percent[digit(self.write_percent.len())];
        let requests = self.requests[digit(self.requests.len())];
        let threads = self.threads[digit(self.threads.len())];
        let block_bytes = self.block_bytes[digit(self.block_bytes.len())];
        let mut label = format!(
            "b{}t{threads}o{requests}w{write_percent}p{}",
            show_block(block_bytes),
            pattern.letters()
        );
        if let Some(iops) = iops {
            label += &format!("iops{iops}");
        }
        if self.alignment_percent.len() > 1 {
            label += &format!("a{alignment_percent}");
        }
        if !self.add_spec.is_empty() {
            label += &format!("-{}", self.add_spec);
        }
        SweepRun { block_bytes, threads, requests, write_percent, pattern, iops, alignment_percent, label }
    }
}

impl SweepRun {
    /// Changes the profile that the sweep begins with.
    ///
    /// # Errors
    /// As [`set_limit`].
    pub fn apply(&self, profile: &mut Profile) -> Result<(), String> {
        let changes = Changes {
            block_bytes: Some(self.block_bytes),
            write_percent: Some(self.write_percent),
            threads: Some(self.threads),
            requests: Some(self.requests),
            pattern: Some(self.pattern),
            ..Changes::default()
        };
        changes.apply(profile);
        match self.iops {
            Some(iops) => set_limit(profile, iops),
            None => Ok(()),
        }
    }

    /// The columns by which a row of result.tsv is found again.
    pub fn keys(&self) -> Vec<(String, String)> {
        let mut keys: Vec<(String, String)> = [
            ("BlockSize", self.block_bytes.to_string()),
            ("Threads", self.threads.to_string()),
            ("Outstanding", self.requests.to_string()),
            ("WriteRatio", self.write_percent.to_string()),
            ("Pattern", self.pattern.letters().to_owned()),
            ("VMAlignmentPct", self.alignment_percent.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        keys.push(("Iops".into(), self.iops.map_or_else(String::new, |iops| iops.to_string())));
        keys
    }
}

/// A block size in KiB as VMFleet's labels have it; other sizes in bytes.
fn show_block(bytes: u32) -> String {
    if bytes.is_multiple_of(1024) { (bytes / 1024).to_string() } else { format!("{bytes}B") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn sweep() -> Sweep {
        Sweep {
            block_bytes: vec![4096, 65_536],
            threads: vec![1],
            requests: vec![1, 32],
            write_percent: vec![0, 10, 100],
            patterns: vec![Pattern::Random, Pattern::Sequential],
            iops: vec![None],
            alignment_percent: vec![100],
            add_spec: String::new(),
        }
    }

    #[test]
    fn a_sweep_is_the_cross_product_with_unique_labels() {
        let runs = sweep().expand().unwrap();
        assert_eq!(runs.len(), 24);
        let labels: BTreeSet<&str> = runs.iter().map(|run| run.label.as_str()).collect();
        assert_eq!(labels.len(), 24);
        assert_eq!((runs[0].label.as_str(), runs[23].label.as_str()), ("b4t1o1w0pr", "b64t1o32w100ps"));
        assert_eq!(runs[1].label, "b4t1o1w0ps", "the pattern changes fastest");
    }

    #[test]
    fn limits_alignment_and_the_added_word_are_in_the_label() {
        let runs = Sweep {
            iops: vec![None, Some(500)],
            alignment_percent: vec![100, 70],
            add_spec: "night".into(),
            ..sweep()
        };
        let runs = runs.expand().unwrap();
        assert_eq!(runs[3].label, "b4t1o1w0priops500a70-night");
    }

    #[test]
    fn an_empty_list_and_a_sweep_without_end_are_refused() {
        assert!(Sweep { threads: vec![], ..sweep() }.expand().is_err());
        assert!(Sweep { threads: vec![1; 1000], ..sweep() }.expand().is_err());
    }

    #[test]
    fn a_run_changes_its_profile_into_a_valid_one() {
        for run in (Sweep { iops: vec![None, Some(100)], ..sweep() }).expand().unwrap() {
            let mut profile = crate::workload::named("general").unwrap().profile();
            run.apply(&mut profile).unwrap();
            profile.fill_templates(&["x".into()]).unwrap();
            assert_eq!(profile.validate().errors, Vec::<String>::new(), "{}", run.label);
        }
    }
}

//! Prometheus' text format (exposition format 0.0.4): families with their samples.

use crate::model::MetricKind;
use std::collections::BTreeMap;
use std::fmt::Write;
use types::LatencyHistogram;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Counter,
    Gauge,
    Histogram,
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

struct Family {
    help: String,
    kind: Type,
    samples: String,
}

/// Samples by family, since the text keeps each family together.
#[derive(Default)]
pub struct Families(BTreeMap<String, Family>);

impl Families {
    fn family(&mut self, name: &str, help: &str, kind: Type) -> &mut Family {
        let family = self.0.entry(name.to_owned()).or_insert_with(|| Family {
            help: help.to_owned(),
            kind,
            samples: String::new(),
        });
        debug_assert_eq!(family.kind, kind, "{name} has two types");
        family
    }

    pub fn add(&mut self, name: &str, help: &str, kind: MetricKind, labels: &[(&str, &str)], value: f64) {
        let kind = match kind {
            MetricKind::Counter => Type::Counter,
            MetricKind::Gauge => Type::Gauge,
        };
        sample(&mut self.family(name, help, kind).samples, name, labels, value);
    }

    pub fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: u64) {
        self.add(name, help, MetricKind::Counter, labels, value as f64);
    }

    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add(name, help, MetricKind::Gauge, labels, value);
    }

    /// Adds a gauge of 1 whose labels describe an object. Other samples name it by the first label alone.
    pub fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) {
        self.gauge(name, help, labels, 1.0);
    }

    /// Adds a histogram in seconds; `name` ends in `_seconds`.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        histogram: &LatencyHistogram,
    ) {
        let samples = &mut self.family(name, help, Type::Histogram).samples;
        let bucket = format!("{name}_bucket");
        let mut up_to_here = 0;
        for (bound, count) in histogram.buckets() {
            up_to_here += count;
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            sample(samples, &bucket, &labels, up_to_here as f64);
        }
        sample(samples, &format!("{name}_sum"), labels, histogram.sum().as_secs_f64());
        sample(samples, &format!("{name}_count"), labels, up_to_here as f64);
    }

    pub fn render(self) -> String {
        let mut text = String::new();
        for (name, family) in self.0 {
            let (help, kind) = (family.help.replace('\\', "\\\\").replace('\n', "\\n"), family.kind.name());
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            text.push_str(&family.samples);
        }
        text
    }
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    out.push_str(name);
    for (at, (label, value)) in labels.iter().enumerate() {
        let open = if at == 0 { '{' } else { ',' };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{open}{label}=\"{value}\"");
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

//! The table of `Watch-FleetCluster`, which the published figures of 16 nodes picture: its columns and
//! their widths.
//!
//! Promises: the row `Total` is the sum of the others, and has no latency, since means of nodes with different loads do not add up.
//! MB are 10^6 bytes.

use serde::Serialize;

/// One node's rates in a second; a node that does not answer has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    pub read_iops: f64,
    pub write_iops: f64,
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
    /// From a request's arrival at the node to its answer.
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
    /// Mean time of reads and writes together.
    pub volume_ms: Option<f64>,
    /// Mean time at the node's workers, reads and writes together.
    pub worker_ms: Option<f64>,
}

impl Rates {
    /// Waiting time of a worker beyond the node's own time: network, and queues before the node.
    pub fn above_ms(&self) -> Option<f64> {
        Some(self.worker_ms? - self.volume_ms?)
    }
}

/// A row: the node and its rates; `None`: the node did not answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub node: String,
    /// From when to when, by the node's own clock: microseconds since it was started.
    pub between_us: Option<[u64; 2]>,
    pub rates: Option<Rates>,
}

struct Column {
    name: &'static str,
    width: usize,
    has_divider: bool,
    kind: Kind,
    value: fn(&Rates) -> Option<f64>,
}

#[derive(PartialEq)]
enum Kind {
    /// Summed, whole, with commas.
    Rate,
    /// Not summed, three decimals.
    Latency,
}

const NODE_WIDTH: usize = 16;
const MB: f64 = 1e6;

const fn rate(
    name: &'static str,
    width: usize,
    has_divider: bool,
    value: fn(&Rates) -> Option<f64>,
) -> Column {
    Column { name, width, has_divider, kind: Kind::Rate, value }
}

const fn latency(
    name: &'static str,
    width: usize,
    has_divider: bool,
    value: fn(&Rates) -> Option<f64>,
) -> Column {
    Column { name, width, has_divider, kind: Kind::Latency, value }
}

/// The set "CSV FS" of VMFleet, without its queue lengths, as the published table has it.
const VOLUME: [Column; 8] = [
    rate("IOPS", 12, false, |rates| Some(rates.read_iops + rates.write_iops)),
    rate("Reads", 12, false, |rates| Some(rates.read_iops)),
    rate("Writes", 12, false, |rates| Some(rates.write_iops)),
    rate("BW (MB/s)", 13, true, |rates| Some((rates.read_bytes_per_s + rates.write_bytes_per_s) / MB)),
    rate("Read", 8, false, |rates| Some(rates.read_bytes_per_s / MB)),
    rate("Write", 8, false, |rates| Some(rates.write_bytes_per_s / MB)),
    latency("Read Lat (ms)", 15, true, |rates| rates.read_ms),
    latency("Write Lat", 10, false, |rates| rates.write_ms),
];
/// Further columns while workers run: their times, and the part of them above the volume.
const WORKERS: [Column; 2] =
    [latency("Worker Lat", 12, true, |rates| rates.worker_ms), latency("Above", 8, false, Rates::above_ms)];

/// The table as text: a header, the row `Total`, and the nodes in their order.
pub fn text(rows: &[Row]) -> String {
    let has_workers = rows.iter().filter_map(|row| row.rates).any(|rates| rates.worker_ms.is_some());
    let columns: Vec<&Column> = VOLUME.iter().chain(WORKERS.iter().filter(|_| has_workers)).collect();
    let mut text = line("", columns.iter().map(|column| (*column, column.name.to_owned())));
    let total = |column: &Column| match column.kind {
        Kind::Rate => {
            let values = rows.iter().filter_map(|row| row.rates.as_ref()).filter_map(column.value);
            commas(values.sum())
        }
        Kind::Latency => String::new(),
    };
    text += &line("Total", columns.iter().map(|column| (*column, total(column))));
    for row in rows {
        let cell = |column: &Column| match row.rates.as_ref().and_then(column.value) {
            None => "-".to_owned(),
            Some(value) if column.kind == Kind::Rate => commas(value),
            Some(value) => format!("{value:.3}"),
        };
        text += &line(&row.node, columns.iter().map(|column| (*column, cell(column))));
    }
    text
}

fn line<'a>(node: &str, cells: impl Iterator<Item = (&'a Column, String)>) -> String {
    let node: String = node.chars().take(NODE_WIDTH - 1).collect();
    let mut line = format!("{node:<NODE_WIDTH$}");
    for (column, cell) in cells {
        let divider = if column.has_divider { "| " } else { "" };
        line += &format!("{divider}{cell:<width$}", width = column.width);
    }
    line.trim_end().to_owned() + "\n"
}

/// A whole number with a comma between thousands.
pub fn commas(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns of [`tsv`], a line a node and second.
pub const TSV_HEADER: &str = "unix_s\tnode\tread_iops\twrite_iops\tread_bytes_per_s\twrite_bytes_per_s\tread_ms\twrite_ms\tworker_ms\tabove_ms\n";

/// The rows as tab-separated values; of a node that did not answer they are empty.
pub fn tsv(unix_s: u64, rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        text += &format!("{unix_s}\t{}", row.node.replace(['\t', '\n'], " "));
        let rates = row.rates.as_ref();
        let values: [Option<f64>; 8] = [
            rates.map(|rates| rates.read_iops),
            rates.map(|rates| rates.write_iops),
            rates.map(|rates| rates.read_bytes_per_s),
            rates.map(|rates| rates.write_bytes_per_s),
            rates.and_then(|rates| rates.read_ms),
            rates.and_then(|rates| rates.write_ms),
            rates.and_then(|rates| rates.worker_ms),
            rates.and_then(Rates::above_ms),
        ];
        for value in values {
            text += &value.map_or_else(|| "\t".to_owned(), |value| format!("\t{value:.3}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the published table: node, reads, writes, MB/s read, read and write latency.
    const PUBLISHED: [(&str, f64, f64, f64, f64, f64); 16] = [
        ("53171R10-02", 310_659.0, 21.0, 1264.0, 2.997, 5.642),
        ("53171R10-04", 304_676.0, 22.0, 1248.0, 2.911, 5.561),
        ("53171R10-06", 325_962.0, 22.0, 1335.0, 2.572, 5.031),
        ("53171R10-08", 310_059.0, 22.0, 1270.0, 2.859, 5.474),
        ("53171R10-10", 323_518.0, 23.0, 1317.0, 2.604, 5.008),
        ("53171R10-12", 307_052.0, 23.0, 1255.0, 3.057, 5.642),
        ("53171R10-14", 316_096.0, 23.0, 1295.0, 2.967, 5.623),
        ("53171R10-16", 310_355.0, 22.0, 1271.0, 3.011, 5.617),
        ("53171R10-18", 306_261.0, 24.0, 1246.0, 2.998, 5.540),
        ("53171R10-20", 312_276.0, 24.0, 1271.0, 2.930, 5.564),
        ("53171R10-22", 314_715.0, 24.0, 1285.0, 2.828, 5.416),
        ("53171R10-24", 307_646.0, 23.0, 1252.0, 2.986, 5.638),
        ("53171R10-26", 302_082.0, 23.0, 1237.0, 3.040, 5.718),
        ("53171R10-28", 302_930.0, 24.0, 1235.0, 2.945, 5.610),
        ("53171R10-30", 319_316.0, 23.0, 1299.0, 2.253, 4.569),
        ("53171R10-32", 285_198.0, 23.0, 1163.0, 3.444, 5.988),
    ];

    fn published() -> Vec<Row> {
        let rates = |(_, reads, writes, read_mb, read_ms, write_ms): (&str, f64, f64, f64, f64, f64)| Rates {
            read_iops: reads,
            write_iops: writes,
            read_bytes_per_s: read_mb * MB,
            write_bytes_per_s: 0.1 * MB,
            read_ms: Some(read_ms),
            write_ms: Some(write_ms),
            ..Rates::default()
        };
        PUBLISHED
            .into_iter()
            .map(|row| Row { node: row.0.into(), between_us: None, rates: Some(rates(row)) })
            .collect()
    }

    #[test]
    fn the_published_table_of_16_nodes_comes_out() {
        let text = text(&published());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 18);
        assert_eq!(
            lines[0],
            "                IOPS        Reads       Writes      | BW (MB/s)    Read    Write   | Read Lat (ms)  Write Lat"
        );
        // The paper has 4,959,166 and 4,958,800: its 16 rows are rounded. Its writes are 366 as well.
        assert_eq!(
            lines[1],
            "Total           4,959,167   4,958,801   366         | 20,245       20,243  2       |"
        );
        assert_eq!(
            lines[2],
            "53171R10-02     310,680     310,659     21          | 1,264        1,264   0       | 2.997          5.642"
        );
        assert_eq!(lines[17].split_whitespace().last(), Some("5.988"));
    }

    #[test]
    fn the_total_has_no_latency_and_a_node_that_is_away_has_dashes() {
        let mut rows = published();
        rows.truncate(2);
        rows[1].rates = None;
        let text = text(&rows);
        assert!(text.lines().nth(1).unwrap().ends_with('|'), "{text}");
        let away = text.lines().last().unwrap();
        assert_eq!(away.matches('-').count(), 9, "one is part of the name: {away}");
        assert!(text.contains("Total           310,680"), "{text}");
    }

    #[test]
    fn while_workers_run_the_gap_above_the_volume_stands_beside() {
        let rates = Rates {
            read_iops: 310_659.0,
            read_ms: Some(2.89),
            volume_ms: Some(2.89),
            worker_ms: Some(4.54),
            ..Rates::default()
        };
        let rows = [Row { node: "one".into(), between_us: None, rates: Some(rates) }];
        assert!(text(&rows).lines().next().unwrap().ends_with("| Worker Lat  Above"));
        assert!(text(&rows).ends_with("| 4.540       1.650\n"), "{}", text(&rows));
        let line = tsv(7, &rows);
        assert_eq!(line.matches('\t').count(), TSV_HEADER.matches('\t').count());
        assert!(
            line.starts_with("7\tone\t310659.000\t0.000\t") && line.ends_with("\t4.540\t1.650\n"),
            "{line}"
        );
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,568"],
            [0.0, 999.0, 999.5, 1_234_567.9].map(commas).each_ref().map(String::as_str)
        );
    }
}

// What clients ask, how long it takes, where it goes: now, and in the last hour, day and month.

import { html, useEffect, useMemo, useState } from "./dom.js";
import { Card, Chart, Table } from "./parts.js";
import { ask } from "./server.js";
import { count, micros, percent, rate, size } from "./words.js";

const SPANS = [["now", "5 minutes"], ["hour", "Hour"], ["day", "Day"], ["month", "30 days"]];

// The columns of the history's series, by name.
const column = (history, name) => history.values[history.series.indexOf(name)] ?? [];

// A gap of time is shown as one: a point without values stands in it.
function withGaps(history, names) {
  const times = [];
  const values = names.map(() => []);
  const columns = names.map((name) => column(history, name));
  history.at_unix_s.forEach((at, place) => {
    const before = history.at_unix_s[place - 1];
    if (before !== undefined && at - before > 2.5 * history.step_s) {
      times.push(before + history.step_s);
      values.forEach((list) => list.push(null));
    }
    times.push(at);
    values.forEach((list, series) => list.push(columns[series][place]));
  });
  return [times, ...values];
}

const CHARTS = [
  ["Operations a second", ["Reads", "Writes", "Others"], ["read_operations_per_s", "write_operations_per_s", "metadata_operations_per_s"], count],
  ["Throughput", ["Read", "Written", "By RDMA"], ["read_bytes_per_s", "write_bytes_per_s", "rdma_bytes_per_s"], rate],
  ["Latency of reads", ["Median", "99 %", "99.9 %"], ["read_p50_us", "read_p99_us", "read_p999_us"], micros],
  ["Latency of writes", ["Median", "99 %", "99.9 %"], ["write_p50_us", "write_p99_us", "write_p999_us"], micros],
  ["Disks", ["Read", "Written"], ["disk_read_bytes_per_s", "disk_write_bytes_per_s"], rate],
];

const ofSample = {
  read_operations_per_s: (s) => s.read.operations_per_s,
  write_operations_per_s: (s) => s.write.operations_per_s,
  metadata_operations_per_s: (s) => s.metadata.operations_per_s,
  read_bytes_per_s: (s) => s.read.bytes_per_s,
  write_bytes_per_s: (s) => s.write.bytes_per_s,
  rdma_bytes_per_s: (s) => s.rdma_bytes_per_s,
  read_p50_us: (s) => s.read.p50_us,
  read_p99_us: (s) => s.read.p99_us,
  read_p999_us: (s) => s.read.p999_us,
  write_p50_us: (s) => s.write.p50_us,
  write_p99_us: (s) => s.write.p99_us,
  write_p999_us: (s) => s.write.p999_us,
  disk_read_bytes_per_s: (s) => s.disk_read_bytes_per_s,
  disk_write_bytes_per_s: (s) => s.disk_write_bytes_per_s,
};

const Now = ({ sample }) => {
  const kinds = [["Read", sample.read], ["Write", sample.write], ["Others", sample.metadata]];
  return html`<${Table} label="This second" rows=${kinds} keyOf=${([name]) => name} empty="" columns=${[
    { name: "This second", of: ([name]) => html`<b>${name}</b>` },
    { name: "Operations/s", right: true, of: ([, kind]) => count(kind.operations_per_s) },
    { name: "Throughput", right: true, of: ([name, kind]) => (name === "Others" ? "–" : rate(kind.bytes_per_s)) },
    { name: "Mean", right: true, of: ([, kind]) => micros(kind.mean_us) },
    { name: "Median", right: true, of: ([, kind]) => micros(kind.p50_us) },
    { name: "90 %", right: true, of: ([, kind]) => micros(kind.p90_us) },
    { name: "99 %", right: true, of: ([, kind]) => micros(kind.p99_us) },
    { name: "99.9 %", right: true, of: ([, kind]) => micros(kind.p999_us) },
    { name: "Errors/s", right: true, of: ([, kind]) => count(kind.errors_per_s) },
  ]} />`;
};

const times = (part, whole) => (whole > 0 ? `${(part / whole).toFixed(2)} ×` : "–");

// What a byte and an operation of a client become on their way down.
const Layers = ({ live }) => {
  const total = live.performance;
  const now = live.sample;
  const disks = live.disks.filter((disk) => disk.is_local);
  const sum = (of) => disks.reduce((all, disk) => all + of(disk.counters), 0);
  const hit = total.cache_hit_bytes + total.cache_miss_bytes;
  const rows = [
    ["Clients", "read", total.read.operations, total.read.bytes, now.read.bytes_per_s, total.read.bytes],
    ["Volumes: not from memory", "read", null, total.cache_miss_bytes, null, total.read.bytes],
    ["Disks", "read", sum((counters) => counters.reads), total.disk_read_bytes, now.disk_read_bytes_per_s, total.read.bytes],
    ["Clients", "write", total.write.operations, total.write.bytes, now.write.bytes_per_s, total.write.bytes],
    ["Disks: copies, journals, checksums", "write", sum((counters) => counters.writes), total.disk_write_bytes, now.disk_write_bytes_per_s, total.write.bytes],
    ["Disks: flushes", "write", sum((counters) => counters.flushes), null, null, null],
  ];
  return html`<${Table} label="Layers" rows=${rows} keyOf=${(row) => row[0] + row[1]} empty="" columns=${[
    { name: "Layer", of: (row) => html`<b>${row[0]}</b>` },
    { name: "", of: (row) => row[1] },
    { name: "Operations", right: true, of: (row) => count(row[2]) },
    { name: "Bytes", right: true, of: (row) => size(row[3]) },
    { name: "Now", right: true, of: (row) => (row[4] === null ? "–" : rate(row[4])) },
    { name: "By clients' bytes", right: true, of: (row) => (row[3] === null || row[5] === null ? "–" : times(row[3], row[5])) },
  ]} />
  <p class="quiet">Since the server started; ${percent(total.cache_hit_bytes, hit)} of what clients read came from memory. Disks are those of this server.</p>`;
};

const partColumns = (name) => [
  { name, of: (part) => html`<b>${part.name}</b>` },
  { name: "Reads/s", right: true, of: (part) => count(part.reads_per_s) },
  { name: "Writes/s", right: true, of: (part) => count(part.writes_per_s) },
  { name: "Read", right: true, of: (part) => rate(part.read_bytes_per_s) },
  { name: "Written", right: true, of: (part) => rate(part.written_bytes_per_s) },
  { name: "Median", right: true, of: (part) => micros(part.p50_us) },
  { name: "99 %", right: true, of: (part) => micros(part.p99_us) },
  { name: "99.9 %", right: true, of: (part) => micros(part.p999_us) },
];

const Parts = ({ title, name, parts, empty }) => html`<${Card} title=${title}>
  <${Table} label=${title} columns=${partColumns(name)} rows=${parts ?? []} keyOf=${(part) => part.name} empty=${empty} />
</${Card}>`;

export const Performance = ({ live, samples }) => {
  const [span, setSpan] = useState("now");
  const [history, setHistory] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => {
    setHistory(null);
    if (span === "now") return undefined;
    const load = () => ask("GET", `/dashboard/history?span=${span}`).then((found) => { setHistory(found); setError(""); }, (refused) => setError(refused.message));
    load();
    const timer = setInterval(load, { hour: 5000, day: 10000, month: 60000 }[span]);
    return () => clearInterval(timer);
  }, [span]);
  const charts = useMemo(
    () => CHARTS.map(([title, labels, names, write]) => {
      if (span !== "now") return [title, labels, history ? withGaps(history, names) : [[], ...names.map(() => [])], write];
      return [title, labels, [samples.map((sample) => sample.at), ...names.map((name) => samples.map(ofSample[name]))], write];
    }),
    [span, history, span === "now" ? samples : null],
  );
  return html`
    <h1>Performance</h1>
    <${Card} title="Clients of this server"><${Now} sample=${live.sample} /></${Card}>
    <${Card} title="History" extra=${html`<div class="choice" role="group" aria-label="Span">${SPANS.map(([name, title]) => html`<button type="button" class="small" aria-pressed=${span === name} onClick=${() => setSpan(name)}>${title}</button>`)}</div>`}>
      ${error && html`<p class="error" role="alert">${error}</p>`}
      <div class="charts">${charts.map(([title, labels, data, write]) => html`<${Chart} key=${title} title=${title} series=${labels} data=${data} write=${write} />`)}</div>
    </${Card}>
    <${Parts} title="Volumes" name="Volume" parts=${live.volume_figures} empty="Nothing was asked of a volume yet." />
    <${Parts} title="Shares" name="Share" parts=${live.shares} empty="Nothing was asked of a share yet." />
    <${Parts} title="Clients" name="Client" parts=${live.client_figures} empty="No client is connected." />
    <${Card} title="Layer by layer"><${Layers} live=${live} /></${Card}>`;
};

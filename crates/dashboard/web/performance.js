// What clients ask, how long it takes, where it goes: now, and in the last hour, day and month.

import { html, useMemo, useState } from "./dom.js";
import { Card, Chart, Choice, Failed, Table, useAsked } from "./parts.js";
import { RECENT_S, columnsOf, rowsOf } from "./samples.js";
import { count, micros, percent, rate, size } from "./words.js";

// Name, title, the history that has it, its seconds, the time between its points, and how often it is asked for.
const SPANS = [
  ["now", "5 minutes", null, RECENT_S, 1],
  ["quarter", "15 minutes", "hour", 900, 1, 5000],
  ["hour", "Hour", "hour", 3600, 1, 5000],
  ["hours", "6 hours", "day", 21600, 10, 10000],
  ["day", "Day", "day", 86400, 10, 10000],
  ["week", "Week", "month", 604800, 300, 60000],
  ["month", "30 days", "month", 2592000, 300, 60000],
];

const CHARTS = [
  ["Operations a second", ["Reads", "Writes", "Others"], ["read_operations_per_s", "write_operations_per_s", "metadata_operations_per_s"], count],
  ["Throughput", ["Read", "Written", "By RDMA"], ["read_bytes_per_s", "write_bytes_per_s", "rdma_bytes_per_s"], rate],
  ["Latency of reads", ["Median", "99 %", "99.9 %"], ["read_p50_us", "read_p99_us", "read_p999_us"], micros],
  ["Latency of writes", ["Median", "99 %", "99.9 %"], ["write_p50_us", "write_p99_us", "write_p999_us"], micros],
  ["Disks", ["Read", "Written"], ["disk_read_bytes_per_s", "disk_write_bytes_per_s"], rate],
  ["CPU of the machine", ["Busy"], ["cpu_percent"], (value) => `${value.toFixed(0)} %`],
  ["Memory of the machine", ["Used"], ["memory_used_bytes"], size],
  ["Network", ["Received", "Sent"], ["network_received_bytes_per_s", "network_sent_bytes_per_s"], rate],
];

const Now = ({ sample }) => {
  const kinds = [["Read", sample.read], ["Write", sample.write], ["Others", sample.metadata]];
  return html`<${Table} dense label="This second" rows=${kinds} keyOf=${([name]) => name} empty="" columns=${[
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

// Whose figures are missing in those of all servers.
const countedOf = (live) => {
  const servers = live.cluster?.name ? live.cluster.nodes.filter((node) => !node.is_witness) : [];
  const missing = servers.filter((node) => !live.counted.some((name) => name.toLowerCase() === node.name.toLowerCase()));
  return missing.length ? ` Without ${missing.map((node) => node.name).join(", ")}.` : "";
};

const times = (part, whole) => (whole > 0 ? `${(part / whole).toFixed(2)} ×` : "–");

// What a byte and an operation of a client become on their way down.
const Layers = ({ live }) => {
  const total = live.performance;
  const now = live.sample;
  const disks = live.disks.filter((disk) => disk.counters);
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
  return html`<${Table} dense label="Layers" rows=${rows} keyOf=${(row) => row[0] + row[1]} empty="" columns=${[
    { name: "Layer", of: (row) => html`<b>${row[0]}</b>` },
    { name: "", of: (row) => row[1] },
    { name: "Operations", right: true, of: (row) => count(row[2]) },
    { name: "Bytes", right: true, of: (row) => size(row[3]) },
    { name: "Now", right: true, of: (row) => (row[4] === null ? "–" : rate(row[4])) },
    { name: "By clients' bytes", right: true, of: (row) => (row[3] === null || row[5] === null ? "–" : times(row[3], row[5])) },
  ]} />
  <p class="quiet">Since ${live.cluster?.name ? "each server" : "the server"} started; ${percent(total.cache_hit_bytes, hit)} of what clients read came from memory.${countedOf(live)}</p>`;
};

const partColumns = (name) => [
  { name, of: (part) => html`<b>${part.name}</b>` },
  { name: "Reads/s", right: true, sort: (part) => part.reads_per_s, of: (part) => count(part.reads_per_s) },
  { name: "Writes/s", right: true, sort: (part) => part.writes_per_s, of: (part) => count(part.writes_per_s) },
  { name: "Read", right: true, sort: (part) => part.read_bytes_per_s, of: (part) => rate(part.read_bytes_per_s) },
  { name: "Written", right: true, sort: (part) => part.written_bytes_per_s, of: (part) => rate(part.written_bytes_per_s) },
  { name: "Median", right: true, sort: (part) => part.p50_us, of: (part) => micros(part.p50_us) },
  { name: "99 %", right: true, sort: (part) => part.p99_us, of: (part) => micros(part.p99_us) },
  { name: "99.9 %", right: true, sort: (part) => part.p999_us, of: (part) => micros(part.p999_us) },
];

const Parts = ({ title, name, parts, empty }) => html`<${Card} title=${title}>
  <${Table} dense label=${title} columns=${partColumns(name)} rows=${parts ?? []} keyOf=${(part) => part.name} empty=${empty} />
</${Card}>`;

export const Performance = ({ live, samples }) => {
  const [chosen, setChosen] = useState("now");
  const [, , span, span_s, step_s, every_ms] = SPANS.find(([name]) => name === chosen);
  const [history, error] = useAsked(span ? `/dashboard/history?span=${span}` : "", every_ms);
  const rows = useMemo(() => {
    if (!span) return samples;
    const all = history ? rowsOf(history) : [];
    return all.filter((row) => row.at > Date.now() / 1000 - span_s);
  }, [span, span_s, history, span ? null : samples]);
  const charts = useMemo(() => CHARTS.map(([title, labels, names, write]) => [title, labels, columnsOf(rows, names, step_s), write]), [rows, step_s]);
  return html`
    <h1>Performance</h1>
    <${Card} title=${live.cluster?.name ? `All servers of ${live.cluster.name}` : "Clients"}><${Now} sample=${live.sample} />${countedOf(live) && html`<p class="quiet">${countedOf(live)}</p>`}</${Card}>
    <${Card} title=${live.cluster?.name ? `History of ${live.server}` : "History"} extra=${html`<${Choice} label="Span" value=${chosen} change=${setChosen} choices=${SPANS.map(([name, title]) => [name, title])} />`}>
      <${Failed} why=${error} />
      <div class="charts">${charts.map(([title, labels, data, write]) => html`<${Chart} key=${title} title=${title} series=${labels} data=${data} write=${write} span_s=${span_s} />`)}</div>
      <p class="quiet">Drag over a chart to look closer; a double click shows all of it again.</p>
    </${Card}>
    <${Parts} title="Volumes" name="Volume" parts=${live.volume_figures} empty="Nothing was asked of a volume yet." />
    <${Parts} title="Shares" name="Share" parts=${live.shares} empty="Nothing was asked of a share yet." />
    <${Parts} title="Clients" name="Client" parts=${live.client_figures} empty="No client is connected." />
    <${Card} title="Layer by layer"><${Layers} live=${live} /></${Card}>`;
};

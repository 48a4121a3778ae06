// What this server did second by second, and what all servers of its cluster did while the page was open: live events and its history as rows of one form, { at, SERIES: value }.

import { withGaps } from "./parts.js";
import { ask } from "./server.js";

// Rows that are kept of live events: five minutes.
export const RECENT_S = 300;

const OF_SAMPLE = {
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
  cpu_percent: (s) => s.machine?.cpu_percent,
  memory_used_bytes: (s) => s.machine?.memory_used_bytes,
  network_received_bytes_per_s: (s) => s.machine?.received_bytes_per_s,
  network_sent_bytes_per_s: (s) => s.machine?.sent_bytes_per_s,
};

const isCluster = (event) => Boolean(event.cluster?.name);

// What all servers did has names of its own: the history is one server's.
export const OF_ALL = { all_read_operations_per_s: "read_operations_per_s", all_write_operations_per_s: "write_operations_per_s" };

export const rowOf = (event) => ({
  at: event.at_unix_ms / 1000,
  ...Object.fromEntries(Object.entries(OF_SAMPLE).map(([name, of]) => [name, of(event.own_sample) ?? null])),
  ...Object.fromEntries(Object.entries(OF_ALL).map(([name, own]) => [name, OF_SAMPLE[own](event.sample)])),
});

// A row for each point of a history.
export const rowsOf = (history) => history.at_unix_s.map((at, place) => ({ at, ...Object.fromEntries(history.series.map((name, series) => [name, history.values[series][place]])) }));

// What happened before the first row that is there, so that charts begin full; without a history they begin empty.
export async function before(rows, event) {
  const history = await ask("GET", "/dashboard/history?span=hour").catch(() => null);
  const first = rows[0]?.at ?? Infinity;
  const old = history ? rowsOf(history).filter((row) => row.at < first - 0.5) : [];
  // One server alone is all there is.
  if (!isCluster(event)) old.forEach((row) => Object.entries(OF_ALL).forEach(([name, own]) => { row[name] = row[own]; }));
  return old.concat(rows);
}

export const recent = (rows) => rows.filter((row) => row.at > (rows.at(-1)?.at ?? 0) - RECENT_S);

// Columns for a chart, with gaps where no row is.
export const columnsOf = (rows, names, step_s) => withGaps(rows.map((row) => row.at), names.map((name) => rows.map((row) => row[name] ?? null)), step_s);

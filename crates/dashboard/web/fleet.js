// A running fleet: the table of `fleet watch`.

import { html } from "./dom.js";
import { Card, Command, Facts, Table } from "./parts.js";
import { clock, count, fill, seconds } from "./words.js";

const MB = 1e6;
const ms = (us) => (us === null || us === undefined ? "–" : (us / 1000).toFixed(3));

export const Fleet = ({ live }) => {
  const run = live.fleet;
  if (!run) {
    return html`<h1>Fleet</h1><${Card} title="No fleet runs">
      <p>A fleet of workers measures all servers together, and is shown here while it runs:</p>
      <p><${Command} line=${fill("fleet new --workers-per-node 10")} /> <${Command} line=${fill("fleet start")} /> <${Command} line=${fill("fleet run seed-004")} /></p></${Card}>`;
  }
  const volume = (node) => live.nodes?.[node]?.sample;
  // The total is the sum of the nodes whose counters are known. Means of nodes with different loads do not add up.
  const operations = (line, kind) => {
    if (line !== run.total) return volume(line.node)?.[kind].operations_per_s;
    const known = run.nodes.map((node) => volume(node.node)).filter(Boolean);
    return known.length ? known.reduce((sum, sample) => sum + sample[kind].operations_per_s, 0) : null;
  };
  const both = (sample) => {
    const counted = sample.read.count + sample.write.count;
    return counted ? ((sample.read.mean_us ?? 0) * sample.read.count + (sample.write.mean_us ?? 0) * sample.write.count) / counted : null;
  };
  const above = (line) => {
    const sample = volume(line.node);
    const own = sample && both(sample);
    return own && line.mean_us ? ms(line.mean_us - own) : "–";
  };
  const now = live.at_unix_ms;
  const phase = run.total.ready < run.total.processes ? `${run.total.ready} of ${run.total.processes} processes are ready` : now < run.measure_from_unix_ms ? "warm-up" : now < run.ends_unix_ms ? "measuring" : "ending";
  const columns = [
    { name: "Node", of: (line) => html`<b>${line.node}</b>` },
    { name: "Workers", right: true, of: (line) => line.workers },
    { name: "IOPS", right: true, of: (line) => count(line.operations_per_s) },
    { name: "BW (MB/s)", right: true, of: (line) => count(line.bytes_per_s / MB) },
    { name: "Reads", right: true, about: "By the node's own counters", of: (line) => count(operations(line, "read")) },
    { name: "Writes", right: true, about: "By the node's own counters", of: (line) => count(operations(line, "write")) },
    { name: "Read Lat (ms)", right: true, about: "From a request's arrival at the node to its answer", of: (line) => ms(volume(line.node)?.read.mean_us) },
    { name: "Write Lat", right: true, about: "From a request's arrival at the node to its answer", of: (line) => ms(volume(line.node)?.write.mean_us) },
    { name: "Worker Lat", right: true, about: "As the workers see it", of: (line) => ms(line.mean_us) },
    { name: "Above", right: true, about: "What a worker waits beyond the node's own time", of: above },
  ];
  return html`<h1>Fleet</h1>
    <${Card} title=${run.label}>
      <${Facts} facts=${[["Phase", phase], ["Ends", `${clock(Math.round(run.ends_unix_ms / 1000))}, in ${seconds(Math.max(0, (run.ends_unix_ms - now) / 1000))}`]]} />
      <${Table} dense label="Fleet" columns=${columns} rows=${[run.total, ...run.nodes]} keyOf=${(line) => line.node} empty="No worker runs." />
      <p>On a terminal: <${Command} line=${fill("fleet watch")} /></p>
    </${Card}>`;
};

// All servers of the cluster; one server alone is a list of one.

import { html } from "./dom.js";
import { addNode, drainNode, removeNode, resumeNode } from "./actions.js";
import { Card, Command, Facts, Menu, State, Table } from "./parts.js";
import { clock, count, day, fill, micros, percent, rate, seconds, share } from "./words.js";

const own = (live) => ({
  name: live.server,
  state: "up",
  volumes: live.volumes.map((volume) => volume.name),
  disks: live.disks.length,
  addresses: [],
  version: live.version,
});

const menuOf = (node, isCluster) => {
  if (!isCluster) return "";
  const isDraining = node.state === "draining" || node.state === "drained";
  return html`<${Menu} label=${node.name} items=${[
    !node.is_witness && !isDraining && node.state !== "down" && ["Drain …", () => drainNode(node)],
    isDraining && ["Resume …", () => resumeNode(node)],
    ["Remove …", () => removeNode(node), true],
  ]} />`;
};

const columnsOf = (live, isCluster) => {
  const told = (node) => live.nodes?.[node.name];
  const figure = (of) => (node) => (told(node) ? of(told(node).sample) : "–");
  const machine = (of) => (node) => (told(node)?.machine ? of(told(node).machine) : "–");
  return [
    { name: "Node", sort: (node) => node.name, of: (node) => html`<b>${node.name}</b>${isCluster && node.name === live.server ? html` <span class="quiet">this one</span>` : ""}` },
    { name: "State", sort: (node) => node.state, of: (node) => html`<${State} of=${node.state} />` },
    { name: "Volumes owned", of: (node) => node.volumes.join(", ") || "none" },
    { name: "Disks", right: true, sort: (node) => node.disks, of: (node) => (node.is_witness ? "–" : node.disks) },
    { name: "Operations/s", right: true, of: figure((sample) => count(sample.read.operations_per_s + sample.write.operations_per_s)) },
    { name: "Throughput", right: true, of: figure((sample) => rate(sample.read.bytes_per_s + sample.write.bytes_per_s)) },
    { name: "Latency, read / write", right: true, about: "Of reads and of writes: mean from a request's arrival at the node to its answer", of: figure((sample) => `${micros(sample.read.mean_us)} / ${micros(sample.write.mean_us)}`) },
    { name: "CPU", right: true, about: "Of all processors of the machine", of: machine((one) => (one.cpu_percent === null ? "–" : `${one.cpu_percent.toFixed(0)} %`)) },
    { name: "Memory", right: true, about: "Of the machine", of: machine((one) => (one.memory_used_bytes === null ? "–" : html`<span title=${share(one.memory_used_bytes, one.memory_bytes)}>${percent(one.memory_used_bytes, one.memory_bytes)}</span>`)) },
    { name: "Network in, out", right: true, about: "Of all network interfaces but loopback", of: machine((one) => `${rate(one.received_bytes_per_s)}, ${rate(one.sent_bytes_per_s)}`) },
    { name: "Uptime", right: true, about: "Since the server's program started", of: (node) => (told(node) ? seconds(told(node).performance.uptime_us / 1e6) : "–") },
    isCluster && { name: "SMB, SMB Direct", of: (node) => (node.is_witness ? "–" : html`${node.smb ?? "–"}${node.rdma ? html`<br />${node.rdma}` : ""}`) },
    isCluster && live.cluster.nodes.some((node) => node.rack) && { name: "Rack", of: (node) => node.rack || "–" },
    { name: "Version", of: (node) => node.version },
    { name: "", of: (node) => menuOf(node, isCluster) },
  ].filter(Boolean);
};

export const Nodes = ({ live }) => {
  const cluster = live.cluster;
  const isCluster = Boolean(cluster?.name);
  if (!cluster) return html`<h1>Nodes</h1><${Card}><p class="empty">The cluster's records are being read …</p></${Card}>`;
  const nodes = isCluster ? cluster.nodes : [own(live)];
  const servers = nodes.filter((node) => !node.is_witness);
  const known = servers.map((node) => live.nodes?.[node.name]?.sample).filter(Boolean);
  const sum = (of) => known.reduce((all, sample) => all + of(sample), 0);
  const facts = isCluster && [
    ["Kept by", `${cluster.engine.name} ${cluster.engine.version ?? ""}`],
    ["Members", cluster.engine.members.map((name) => (cluster.engine.members_down?.includes(name) ? `${name} (does not answer)` : name)).join(", ")],
    ["Must answer", `${cluster.engine.quorum} of ${cluster.engine.members.length}`],
    ["Revision", count(cluster.engine.revision)],
    cluster.authority_ends_unix_s && ["Certificate authority ends", day(cluster.authority_ends_unix_s)],
    ...nodes.map((node) => [`${node.name} joined`, clock(node.joined_unix_s)]),
  ].filter(Boolean);
  return html`
    <h1>Nodes</h1>
    <${Card} title=${isCluster ? `Cluster ${cluster.name}` : "One server"} extra=${isCluster && html`<button type="button" onClick=${addNode}>Add a node</button>`}>
      <${Table} dense label="Nodes" columns=${columnsOf(live, isCluster)} rows=${nodes} keyOf=${(node) => node.name} empty="There is none." />
      ${isCluster && known.length > 0 && html`<p>All together: ${count(sum((sample) => sample.read.operations_per_s + sample.write.operations_per_s))} operations/s, ${rate(sum((sample) => sample.read.bytes_per_s + sample.write.bytes_per_s))}${known.length < servers.length ? `, of ${known.length} of ${servers.length} nodes` : ""}</p>`}
      ${!isCluster && html`<p>Several servers form a cluster: <${Command} line=${fill("cenote cluster create --name NAME")} /></p>`}
    </${Card}>
    ${isCluster && html`<${Card} title="State of the cluster">
      <${Facts} facts=${facts} />
      ${cluster.at_risk.map((risk) => html`<p class="risk"><${State} of="partly" word=${risk} /></p>`)}
      ${cluster.engine.notes.map((note) => html`<p class="quiet">${note}</p>`)}
      <p>Whether the servers fit together and reach each other: <${Command} line=${fill("cenote cluster test")} /></p>
    </${Card}>`}`;
};

// All servers of the cluster; one server alone is a list of one.

import { html } from "./dom.js";
import { addNode, removeNode } from "./actions.js";
import { Card, Command, Facts, State, Table } from "./parts.js";
import { clock, count, micros, rate } from "./words.js";

const own = (live) => ({
  name: live.server,
  state: "up",
  volumes: live.volumes.map((volume) => volume.name),
  disks: live.disks.length,
  addresses: [],
  version: live.version,
});

export const Nodes = ({ live }) => {
  const cluster = live.cluster;
  const nodes = cluster?.nodes.length ? cluster.nodes : [own(live)];
  const figures = (node) => (node.name === live.server ? live.sample : live.nodes?.[node.name]?.sample);
  const elsewhere = (node) => html`<span class="quiet">ask ${node.name}${live.nodes?.[node.name]?.dashboard ? html` <a href=${live.nodes[node.name].dashboard}>open</a>` : ""}</span>`;
  const figure = (of) => (node) => {
    const found = figures(node);
    return found ? of(found) : node.state === "down" ? "–" : elsewhere(node);
  };
  const known = nodes.map(figures).filter(Boolean);
  const sum = (of) => known.reduce((all, sample) => all + of(sample), 0);
  const columns = [
    { name: "Node", of: (node) => html`<b>${node.name}</b>${node.name === live.server ? html` <span class="quiet">this one</span>` : ""}` },
    { name: "State", of: (node) => html`<${State} of=${node.state} />` },
    { name: "Volumes owned", of: (node) => node.volumes.join(", ") || "none" },
    { name: "Disks", right: true, of: (node) => node.disks },
    { name: "Operations/s", right: true, of: figure((sample) => count(sample.read.operations_per_s + sample.write.operations_per_s)) },
    { name: "Throughput", right: true, of: figure((sample) => rate(sample.read.bytes_per_s + sample.write.bytes_per_s)) },
    { name: "Read, write latency", right: true, about: "Mean from a request's arrival at the node to its answer", of: figure((sample) => `${micros(sample.read.mean_us)}, ${micros(sample.write.mean_us)}`) },
    { name: "SMB, SMB Direct", of: (node) => html`${node.smb ?? "–"}${node.rdma ? html`<br />${node.rdma}` : ""}` },
    { name: "Rack", of: (node) => node.rack || "–" },
    { name: "Version", of: (node) => node.version },
    { name: "", of: (node) => (cluster?.name ? html`<button type="button" class="small" onClick=${() => removeNode(node)} aria-label=${`Remove ${node.name}`}>Remove</button>` : "") },
  ];
  return html`
    <h1>Nodes</h1>
    <${Card} title=${cluster?.name ? `Cluster ${cluster.name}` : "One server"} extra=${cluster?.name && html`<button type="button" onClick=${addNode}>Add a node</button>`}>
      <${Table} label="Nodes" columns=${columns} rows=${nodes} keyOf=${(node) => node.name} empty="There is none." />
      ${cluster?.name && html`<p>All together: ${count(sum((sample) => sample.read.operations_per_s + sample.write.operations_per_s))} operations/s, ${rate(sum((sample) => sample.read.bytes_per_s + sample.write.bytes_per_s))}${known.length < nodes.length ? `, of ${known.length} of ${nodes.length} nodes` : ""}</p>`}
      ${!cluster?.name && html`<p>Several servers form a cluster: <${Command} line="cenote cluster create --name C" /></p>`}
    </${Card}>
    ${cluster?.name && html`<${Card} title="State of the cluster">
      <${Facts} facts=${[["Kept by", `${cluster.engine.name} ${cluster.engine.version ?? ""}`], ["Members", cluster.engine.members.join(", ")], ["Must answer", cluster.engine.quorum], ["Revision", cluster.engine.revision], ...nodes.map((node) => [`${node.name} joined`, clock(node.joined_unix_s)])]} />
      ${cluster.at_risk.map((risk) => html`<p class="risk"><${State} of="partly" word=${risk} /></p>`)}
      ${cluster.engine.notes.map((note) => html`<p class="quiet">${note}</p>`)}
      <p>Whether the servers fit together and reach each other: <${Command} line="cenote cluster test" /></p>
    </${Card}>`}`;
};

// `cenote plan` for what is typed, and for the running pool.

import { html, useEffect, useState } from "./dom.js";
import { Card, Command, Facts, State, Table } from "./parts.js";
import { ask } from "./server.js";
import { count, fill, rate, size } from "./words.js";

const FIELDS = [
  ["nodes", "Nodes", "4", "new"],
  ["drives", "Drives of each", "8x3.84TiB:nvme", "new"],
  ["add_nodes", "Nodes more", "1", "pool"],
  ["lose_nodes", "Nodes lost", "1"],
  ["racks", "Racks", "2"],
  ["reserve_disks", "Reserve, in disks", "1 for each node"],
  ["network", "Network of a node, Gb/s", "10"],
];
const RESILIENCIES = [["", "All that are possible"], ["simple", "Simple"], ["two-way-mirror", "Two-way mirror"], ["three-way-mirror", "Three-way mirror"]];
const PROTECTIONS = [["signed", "Signed"], ["plain", "Plain"], ["encrypted", "Encrypted"]];

const Select = ({ name, label, choices, value, change }) => html`<div class="field"><label for=${name}>${label}</label>
  <select id=${name} onChange=${(event) => change(event.target.value)}>${choices.map(([word, text]) => html`<option value=${word} selected=${word === value}>${text}</option>`)}</select></div>`;

const OF_POOL = "cenote plan --pool POOL [--add-nodes NUMBER] [--lose-nodes NUMBER] [--racks NUMBER] [--reserve-disks NUMBER] [--network NUMBER] [--resiliency RESILIENCY] [--protection PROTECTION] [--witness]";
const OF_NEW = "cenote plan --nodes NUMBER --drives DRIVES [--lose-nodes NUMBER] [--racks NUMBER] [--reserve-disks NUMBER] [--network NUMBER] [--resiliency RESILIENCY] [--protection PROTECTION] [--witness]";

const Answer = ({ plan }) => html`
  <${Card} title="What it holds and survives">
    <${Facts} facts=${[["Nodes", plan.racks ? `${plan.nodes} in ${plan.racks} racks` : plan.nodes], ["Drives", `${plan.drives}, ${size(plan.raw_bytes)} raw, ${size(plan.data_bytes)} for data`], ["State survives", `${plan.state_survives_nodes} of the nodes at once`], ["Memory of a node", `${size(plan.memory.least_bytes)} to begin with, ${size(plan.memory.stores_bytes)} of it what the stores hold`]]} />
    <${Table} label="Capacity" rows=${plan.choices} keyOf=${(choice) => choice.resiliency} empty="No resiliency is possible with these drives." columns=${[
      { name: "Resiliency", of: (choice) => html`<b>${choice.resiliency}</b>` },
      { name: "Usable", right: true, of: (choice) => size(choice.usable_bytes) },
      { name: "Of raw", right: true, of: (choice) => `${choice.efficiency_percent.toFixed(1)} %` },
      { name: "Reserve", right: true, of: (choice) => `${choice.reserve_disks} × disk, ${size(choice.reserve_bytes)}` },
      { name: "Unusable", right: true, about: "Space of large disks that copies cannot reach, as no other disk has as much", of: (choice) => size(choice.stranded_bytes) },
      { name: "Apart by", of: (choice) => choice.apart_by },
      { name: "Survives drives", right: true, of: (choice) => choice.survives_drives },
      { name: "nodes", right: true, of: (choice) => choice.survives_nodes },
      { name: "racks", right: true, of: (choice) => choice.survives_racks },
      { name: "Repairs a node", of: (choice) => html`<${State} of=${choice.repairs_largest_domain ? "yes" : "partly"} word=${choice.repairs_largest_domain ? "Yes" : "No"} />` },
    ]} />
  </${Card}>
  <${Card} title="The most to expect of all nodes, and what bounds it">
    <${Table} label="Bounds" rows=${plan.choices} keyOf=${(choice) => choice.resiliency} empty="None." columns=${[
      { name: "Resiliency", of: (choice) => html`<b>${choice.resiliency}</b>` },
      { name: "4 KiB reads/s", right: true, of: ({ bounds }) => html`${count(bounds.read_iops)} <span class="quiet">${bounds.read_iops_by}</span>` },
      { name: "4 KiB writes/s", right: true, of: ({ bounds }) => html`${count(bounds.write_iops)} <span class="quiet">${bounds.write_iops_by}</span>` },
      { name: "Read", right: true, of: ({ bounds }) => html`${rate(bounds.read_bytes_per_s)} <span class="quiet">${bounds.read_bytes_by}</span>` },
      { name: "Write", right: true, of: ({ bounds }) => html`${rate(bounds.write_bytes_per_s)} <span class="quiet">${bounds.write_bytes_by}</span>` },
      { name: "Network needed", right: true, of: ({ bounds }) => `${(bounds.network_bits_per_s / 1e9).toFixed(1)} Gb/s a node` },
    ]} />
  </${Card}>
  <${Card} title="Storage Spaces Direct with as many servers, without reserve">
    <${Table} label="Storage Spaces Direct" rows=${plan.s2d} keyOf=${(choice) => choice.resiliency} empty="It has no figures for so many servers." columns=${[
      { name: "Resiliency", of: (choice) => choice.resiliency },
      { name: "Of raw", right: true, of: (choice) => `${choice.efficiency_percent.toFixed(1)} %` },
      { name: "Code", of: (choice) => choice.code },
      { name: "Survives", right: true, of: (choice) => choice.survives },
      { name: "Here", of: (choice) => (choice.is_here ? "yes" : "not built") },
    ]} />
    <ul>${plan.notes.map((note) => html`<li>${note}</li>`)}</ul>
  </${Card}>`;

export const Plan = ({ live }) => {
  const pools = live.pools.map((pool) => [pool.name, `Pool ${pool.name} with changes`]);
  const [typed, setTyped] = useState(pools.length ? { pool: pools[0][0] } : { nodes: "4", drives: "8x3.84TiB:nvme" });
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState("");
  const set = (name) => (value) => setTyped((before) => ({ ...before, [name]: value }));
  const begin = (pool) => setTyped(({ nodes, drives, add_nodes, ...rest }) => (pool ? { ...rest, pool } : { ...rest, pool: "", nodes: "4", drives: "8x3.84TiB:nvme" }));
  useEffect(() => {
    let isLast = true;
    const wait = setTimeout(() => {
      const given = Object.entries(typed).filter(([, value]) => value);
      ask("GET", `/dashboard/plan?${new URLSearchParams(given)}`).then(
        (found) => isLast && (setPlan(found), setError("")),
        (refused) => isLast && setError(refused.message),
      );
    }, 250);
    return () => {
      isLast = false;
      clearTimeout(wait);
    };
  }, [typed]);
  const shown = FIELDS.filter(([, , , only]) => !only || (only === "pool") === Boolean(typed.pool));
  return html`
    <h1>Plan</h1>
    <${Card} title="What if">
      <form class="fields" onSubmit=${(event) => event.preventDefault()}>
        <${Select} name="plan-pool" label="Begin with" choices=${[...pools, ["", "New nodes"]]} value=${typed.pool ?? ""} change=${begin} />
        ${shown.map(([name, label, example]) => html`<div class="field" key=${name}><label for=${`plan-${name}`}>${label}</label>
          <input id=${`plan-${name}`} type="text" value=${typed[name] ?? ""} placeholder=${example} onInput=${(event) => set(name)(event.target.value)} autocomplete="off" /></div>`)}
        <${Select} name="plan-resiliency" label="Resiliency" choices=${RESILIENCIES} value=${typed.resiliency ?? ""} change=${set("resiliency")} />
        <${Select} name="plan-protection" label="Messages are" choices=${PROTECTIONS} value=${typed.protection ?? "signed"} change=${set("protection")} />
        <div class="field"><label for="plan-witness">Witness beside two nodes</label><input id="plan-witness" type="checkbox" checked=${Boolean(typed.witness)} onChange=${(event) => set("witness")(event.target.checked ? "yes" : "")} /></div>
      </form>
      <p>The command line says the same: <${Command} line=${fill(typed.pool ? OF_POOL : OF_NEW, typed)} /></p>
      ${error && html`<p class="error" role="alert">${error}</p>`}
    </${Card}>
    ${plan && !error && html`<${Answer} plan=${plan} />`}`;
};

// The first page: three answers, capacity, disks, the next failure, repairs.

import { html } from "./dom.js";
import { createVolume } from "./actions.js";
import { Bar, Card, Chart, Command, Facts, Prose, State, useAsked } from "./parts.js";
import { OF_ALL, RECENT_S, columnsOf } from "./samples.js";
import { baseName, count, day, fill, rate, seconds, share, size, TONES, tone } from "./words.js";

// So many disks have a tile each; of more, only those that need attention, and a line for each state.
const TILES_MAX = 24;
const MEBIBYTE = 2 ** 20;
// A trend has a point an hour.
const TRENDS_EVERY_MS = 300000;

// To be without RDMA costs speed, and no data.
const toneOf = (id, verdict) => (id === "rdma" && verdict === "no" ? "warn" : tone(verdict));

const Answer = ({ question, answer, id }) => html`
  <section class=${`card answer-card ${toneOf(id, answer.verdict)}`} id=${id} data-verdict=${answer.verdict}>
    <h2>${question}</h2>
    <p class="verdict"><span class="sign" aria-hidden="true">${TONES[toneOf(id, answer.verdict)]}</span><span>${answer.answer}</span></p>
    ${answer.because.length > 0 && html`<ul>${answer.because.map((sentence) => html`<li>${sentence}</li>`)}</ul>`}
  </section>`;

const stateOf = (disk) => (disk.status === "ok" ? disk.health : disk.status);

const DiskTile = ({ disk }) => html`
  <a class=${`tile ${tone(stateOf(disk))}`} href="#disks" data-disk=${disk.id} title=${`${disk.path}: ${disk.status}`}>
    <b>${baseName(disk.path)}</b>
    <${State} of=${stateOf(disk)} />
    <small>${disk.node ? `${disk.node} · ` : ""}${disk.allocated_bytes == null ? "" : share(disk.allocated_bytes, disk.size_bytes)}</small>
  </a>`;

const DiskTiles = ({ disks }) => {
  const isFew = disks.length <= TILES_MAX;
  const sorted = disks.toSorted((one, other) => `${one.node} ${one.path}`.localeCompare(`${other.node} ${other.path}`, undefined, { numeric: true }));
  const shown = isFew ? sorted : sorted.filter((disk) => tone(stateOf(disk)) !== "good").slice(0, TILES_MAX);
  const states = [...Map.groupBy(disks, stateOf)];
  return html`<${Card} title=${`Disks (${disks.length})`} extra=${html`<a href="#disks">All</a>`}>
    ${!isFew && html`<p class="states">${states.map(([state, all]) => html`<${State} of=${state} word=${`${all.length} ${String(state).replaceAll("_", " ")}`} /> `)}</p>`}
    <div class="tiles">${shown.map((disk) => html`<${DiskTile} key=${disk.id} disk=${disk} />`)}</div>
  </${Card}>`;
};

const Repair = ({ repair }) => html`<div class="repair">
  <p><b>${repair.what}</b> <span class="quiet">job ${repair.job}</span></p>
  <p>${repair.done_percent === null ? "" : `${repair.done_percent.toFixed(0)} % done`}${repair.bytes_per_s ? `, ${rate(repair.bytes_per_s)}` : ""}${repair.remaining_s === null ? ", time left not known" : `, ${seconds(repair.remaining_s)} left`}</p>
  <p>${repair.slowed_by.length ? html`Slowed by: <${Prose} text=${repair.slowed_by.join("; ")} />` : "Nothing known slows it."}</p>
</div>`;

// How what is allocated of a pool grows, by the history of the last two weeks.
export function trendOf(trend) {
  if (!trend) return "When it will be full can be told after a day.";
  if (Math.abs(trend.bytes_per_day) < MEBIBYTE) return "It does not grow.";
  if (trend.bytes_per_day < 0) return `It shrinks by ${size(-trend.bytes_per_day)} a day.`;
  return `It grows by ${size(trend.bytes_per_day)} a day${trend.full_at_unix_s ? `: full on ${day(trend.full_at_unix_s)}` : ""}.`;
}

const Pool = ({ pool, trend }) => {
  const room = pool.size_bytes - pool.reserve_bytes;
  if (pool.allocated_bytes == null) return html`<p key=${pool.id}>What is allocated of pool ${pool.name} is not known: a server did not answer.</p>`;
  const free = Math.max(0, room - pool.allocated_bytes);
  return html`<div class="pool" key=${pool.id}>
    <p><b>${size(pool.allocated_bytes)}</b> allocated, <b>${size(free)}</b> free of ${size(room)} in pool ${pool.name}, all copies counted; ${size(pool.reserve_bytes)} more kept for repair</p>
    <${Bar} part=${pool.allocated_bytes} whole=${pool.size_bytes} marks=${[room]} warnAt=${(room / pool.size_bytes) * 0.9} label=${share(pool.allocated_bytes, room)} />
    ${trend && html`<p class="quiet">${trendOf(trend.trend)}</p>`}
  </div>`;
};

const Capacity = ({ live, trends }) => html`<${Card} id="capacity" title="Capacity" extra=${html`<a href="#storage">Pool and volumes</a>`}>
  ${live.pools.length === 0
    ? html`<p class="empty">There is no pool yet. <${Command} line=${fill("cenote pool create NAME DISK...")} /></p>`
    : live.pools.map((pool) => html`<${Pool} pool=${pool} trend=${trends?.find((one) => one.pool === pool.name)} />`)}
  ${live.pools.length > 0 && live.volumes.length === 0 && html`<p>There is no volume yet. <button type="button" class="small" onClick=${() => createVolume(live.pools)}>Create a volume</button></p>`}
</${Card}>`;

const left = (next) => {
  if (next.lost_volumes.length) return `data of ${next.lost_volumes.join(", ")} may be lost`;
  if (next.ends_quorum) return "no volume is served until it is back";
  if (next.unknown_volumes.length) return `what would be left of ${next.unknown_volumes.join(", ")} is not known`;
  if (next.waiting_volumes.length) return `${next.waiting_volumes.join(", ")} cannot be written until it is back`;
  if (next.ends_state) return "nothing can be changed until it is back";
  if (next.copies_left === null) return "no data at stake";
  return `${next.copies_left} ${next.copies_left === 1 ? "copy" : "copies"} of every block left`;
};

const NextFailures = ({ live, risks }) => html`<${Card} id="next-failure" title="After the next failure">
  ${live.next_failures.map((next) => html`<div class="next" key=${next.lost}>
    <p><b>${next.lost}</b> of pool ${next.pool} lost</p>
    <p><${State} of=${next.lost_volumes.length || next.ends_quorum ? "no" : next.missing_bytes || next.unknown_volumes.length || next.waiting_volumes.length || next.ends_state ? "partly" : "yes"} word=${left(next)} /></p>
    <p>${next.left_bytes === null ? "free room is not known" : next.missing_bytes ? `${size(next.missing_bytes)} find no room on the others` : `${size(next.left_bytes)} free when repaired`}</p>
  </div>`)}
  ${risks.map((risk) => html`<p class="risk"><${State} of="partly" word=${risk} /></p>`)}
</${Card}>`;

const Server = ({ live }) => {
  const machine = live.nodes?.[live.server]?.machine;
  const uptime_us = live.nodes?.[live.server]?.performance.uptime_us;
  const facts = [
    ["Server", live.server],
    ["Version", live.version],
    uptime_us && ["Uptime", seconds(uptime_us / 1e6)],
    live.cluster?.name && ["Cluster", `${live.cluster.name}, ${live.cluster.nodes.filter((node) => node.state !== "down").length} of ${live.cluster.nodes.length} up`],
    [live.cluster?.name ? "Sessions at all servers" : "Sessions", count(live.session_count)],
    machine?.cpu_percent != null && ["CPU", `${machine.cpu_percent.toFixed(0)} %`],
    machine?.memory_used_bytes != null && ["Memory", share(machine.memory_used_bytes, machine.memory_bytes)],
  ].filter(Boolean);
  return html`<${Card} id="server" title="This server"><${Facts} facts=${facts} /></${Card}>`;
};

const Issues = ({ issues }) => html`<${Card} title="Health" extra=${html`<a href="#health">All</a>`}>
  <ul class="plain">${issues.slice(0, 6).map((issue) => html`<li key=${issue.code + issue.target}><${State} of=${issue.health} word=${issue.what} /></li>`)}</ul>
  ${issues.length > 6 && html`<p class="quiet">and ${issues.length - 6} more</p>`}
</${Card}>`;

// Cards that have nothing to say are left out.
export const Overview = ({ live, samples }) => {
  const [trends] = useAsked("/dashboard/capacity", TRENDS_EVERY_MS);
  const iops = columnsOf(samples, Object.keys(OF_ALL), 1);
  const risks = live.cluster?.at_risk ?? [];
  const issues = live.health.issues.filter((issue) => !issue.is_muted);
  return html`
    <h1>Overview</h1>
    <div class="answers">
      <${Answer} id="safe" question="Is my data safe?" answer=${live.answers.safe} />
      <${Answer} id="rdma" question="Am I on RDMA?" answer=${live.answers.rdma} />
      <${Answer} id="fast" question="How fast is it?" answer=${live.answers.fast} />
    </div>
    <div class="columns">
      ${issues.length > 0 && html`<${Issues} issues=${issues} />`}
      <${Capacity} live=${live} trends=${trends} />
      <${Server} live=${live} />
      ${live.next_failures.length + risks.length > 0 && html`<${NextFailures} live=${live} risks=${risks} />`}
      ${live.repairs.length > 0 && html`<${Card} id="repairs" title="Being repaired">${live.repairs.map((repair) => html`<${Repair} key=${repair.job} repair=${repair} />`)}</${Card}>`}
      <${Card} title="Last 5 minutes" extra=${html`<a href="#performance">Performance</a>`}><${Chart} title=${live.cluster?.name ? "Operations a second of all servers" : "Operations a second"} series=${["Reads", "Writes"]} data=${iops} write=${count} span_s=${RECENT_S} /></${Card}>
    </div>
    ${live.disks.length > 0 && html`<${DiskTiles} disks=${live.disks} />`}`;
};

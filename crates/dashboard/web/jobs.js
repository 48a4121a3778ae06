// Storage jobs, and what is wrong.

import { html } from "./dom.js";
import { acknowledgeDisk, act, cancelJob, resumeJob } from "./actions.js";
import { Bar, Card, Menu, Prose, State, Table } from "./parts.js";
import { ask } from "./server.js";
import { clock, seconds, share, spoken } from "./words.js";

export const Jobs = ({ live }) => {
  const slowed = (job) => live.repairs.find((repair) => repair.job === job.id)?.slowed_by.join("; ") ?? "";
  const done = (job) => (job.total_bytes
    ? html`<span class="used"><${Bar} part=${job.done_bytes} whole=${job.total_bytes} label=${share(job.done_bytes, job.total_bytes)} /> ${share(job.done_bytes, job.total_bytes)}</span>`
    : "–");
  const columns = [
    { name: "Job", sort: (job) => job.id, of: (job) => job.id },
    { name: "What", sort: (job) => job.kind, of: (job) => html`<b>${spoken(job.kind)}</b>` },
    { name: "Of", of: (job) => job.target },
    { name: "State", sort: (job) => job.state, of: (job) => html`<${State} of=${job.state} />` },
    { name: "Done", of: done },
    { name: "Left", right: true, of: (job) => (job.state === "running" ? seconds(job.remaining_s) : "–") },
    { name: "Slowed by", of: (job) => (slowed(job) ? html`<span class="detail"><${Prose} text=${slowed(job)} /></span>` : "–") },
    { name: "Began", sort: (job) => job.started_unix_s, of: (job) => clock(job.started_unix_s) },
    { name: "Ended", of: (job) => (job.ended_unix_s ? clock(job.ended_unix_s) : "–") },
    { name: "Found", of: (job) => html`<span class="detail">${job.message || "–"}</span>` },
    { name: "", of: (job) => html`<${Menu} label=${`job ${job.id}`} items=${[job.state === "running" && ["Cancel …", () => cancelJob(job), true], job.state === "suspended" && ["Resume …", () => resumeJob(job)]]} />` },
  ];
  const goesOn = (job) => job.state === "running" || job.state === "suspended";
  const [running, ended] = [live.jobs.filter(goesOn), live.jobs.filter((job) => !goesOn(job))];
  return html`
    <h1>Jobs</h1>
    <${Card} title="Running"><${Table} dense label="Running jobs" columns=${columns} rows=${running} keyOf=${(job) => job.id} empty="No job runs." /></${Card}>
    <${Card} title="Ended"><${Table} dense label="Ended jobs" columns=${columns} rows=${[...ended].reverse()} keyOf=${(job) => job.id} empty="None has ended since the servers started." /></${Card}>`;
};

// Whose errors it is about, if they may be acknowledged.
function diskOf(issue, live) {
  if (!issue.action.includes("disk acknowledge")) return null;
  const id = issue.target.match(/^disk (\S+)/)?.[1];
  return id ? live.disks.find((disk) => disk.id === id || disk.path === id) ?? { id } : null;
}

const HOURS = [["1", "An hour"], ["8", "8 hours"], ["24", "A day"], ["168", "A week"]];

const mute = (issue) => act({
  title: `Mute: ${issue.what}`,
  text: "It stands under Muted on the dashboard of this server, and does not count in its list of pages. The command line, metrics and alerts go on telling of it.",
  fields: [{ name: "hours", label: "For", kind: "select", value: "8", choices: HOURS }],
  run: (values) => ask("POST", "/dashboard/mutes", { code: issue.code, target: issue.target, until_unix_s: Math.round(Date.now() / 1000 + Number(values.hours) * 3600) }),
  button: "Mute",
});

const unmute = (issue) => act({
  title: `Unmute: ${issue.what}`,
  run: () => ask("POST", "/dashboard/mutes", { code: issue.code, target: issue.target, until_unix_s: 0 }),
  button: "Unmute",
});

const Issue = ({ issue, live }) => {
  const disk = diskOf(issue, live);
  return html`<section class=${`card issue ${issue.health}${issue.is_muted ? " muted" : ""}`} data-code=${issue.code}>
    <header><h2><${State} of=${issue.health} word=${issue.what} /></h2><${Menu} label=${issue.what} items=${[
      disk && ["Acknowledge the errors …", () => acknowledgeDisk(disk)],
      issue.is_muted ? ["Unmute …", () => unmute(issue)] : ["Mute …", () => mute(issue)],
    ]} /></header>
    <dl class="facts">
      <div><dt>Concerns</dt><dd>${issue.target}</dd></div>
      <div><dt>Event</dt><dd><code>${issue.code}</code></dd></div>
      <div><dt>Since</dt><dd>${clock(issue.since_unix_s)} <span class="quiet">${seconds(Math.max(0, live.at_unix_ms / 1000 - issue.since_unix_s))} ago</span></dd></div>
      <div><dt>Means</dt><dd>${issue.meaning}</dd></div>
      <div><dt>Do</dt><dd><${Prose} text=${issue.action} /></dd></div>
    </dl>
  </section>`;
};

export const Health = ({ live }) => {
  const rank = { unhealthy: 0, warning: 1, healthy: 2 };
  const issues = [...live.health.issues].sort((one, other) => rank[one.health] - rank[other.health] || other.since_unix_s - one.since_unix_s);
  const [muted, told] = [issues.filter((issue) => issue.is_muted), issues.filter((issue) => !issue.is_muted)];
  const keyOf = (issue) => issue.code + issue.target;
  return html`
    <h1>Health</h1>
    ${told.length === 0 && html`<${Card}><p class="verdict"><${State} of="healthy" word=${muted.length ? "Nothing is wrong beyond what is muted." : "Nothing is wrong."} /></p></${Card}>`}
    ${told.length > 3 && html`<p class="states"><b>${told.length} issues</b> ${["unhealthy", "warning"].map((word) => [word, told.filter((issue) => issue.health === word).length]).filter(([, found]) => found).map(([word, found]) => html`<${State} of=${word} word=${`${found} ${word}`} /> `)}</p>`}
    ${told.map((issue) => html`<${Issue} key=${keyOf(issue)} issue=${issue} live=${live} />`)}
    ${muted.length > 0 && html`<h2>Muted</h2>`}
    ${muted.map((issue) => html`<${Issue} key=${keyOf(issue)} issue=${issue} live=${live} />`)}`;
};

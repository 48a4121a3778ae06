// Storage jobs, and what is wrong.

import { html } from "./dom.js";
import { Bar, Card, Command, Prose, State, Table } from "./parts.js";
import { clock, seconds, size, spoken } from "./words.js";

export const Jobs = ({ live }) => {
  const slowed = (job) => live.repairs.find((repair) => repair.job === job.id)?.slowed_by.join("; ") ?? "";
  const done = (job) => (job.total_bytes
    ? html`<${Bar} part=${job.done_bytes} whole=${job.total_bytes} label=${`${size(job.done_bytes)} of ${size(job.total_bytes)}`} /><small>${size(job.done_bytes)} of ${size(job.total_bytes)}</small>`
    : "–");
  const columns = [
    { name: "Job", of: (job) => job.id },
    { name: "What", of: (job) => html`<b>${spoken(job.kind)}</b>` },
    { name: "Of", of: (job) => job.target },
    { name: "State", of: (job) => html`<${State} of=${job.state} />` },
    { name: "Done", of: done },
    { name: "Left", right: true, of: (job) => (job.state === "running" ? seconds(job.remaining_s) : "–") },
    { name: "Slowed by", of: (job) => html`<${Prose} text=${slowed(job) || "–"} />` },
    { name: "Began", of: (job) => clock(job.started_unix_s) },
    { name: "Ended", of: (job) => (job.ended_unix_s ? clock(job.ended_unix_s) : "–") },
    { name: "Found", of: (job) => job.message || "–" },
    { name: "", of: (job) => (job.state === "running" ? html`<${Command} line=${`cenote job cancel ${job.id}`} />` : job.state === "suspended" ? html`<${Command} line=${`cenote job resume ${job.id}`} />` : "") },
  ];
  const goesOn = (job) => job.state === "running" || job.state === "suspended";
  const [running, ended] = [live.jobs.filter(goesOn), live.jobs.filter((job) => !goesOn(job))];
  return html`
    <h1>Jobs</h1>
    <${Card} title="Running"><${Table} label="Running jobs" columns=${columns} rows=${running} keyOf=${(job) => job.id} empty="No job runs." /></${Card}>
    <${Card} title="Ended"><${Table} label="Ended jobs" columns=${columns} rows=${[...ended].reverse()} keyOf=${(job) => job.id} empty="None has ended since the server started." /></${Card}>`;
};

export const Health = ({ live }) => {
  const rank = { unhealthy: 0, warning: 1, healthy: 2 };
  const issues = [...live.health.issues].sort((one, other) => rank[one.health] - rank[other.health] || other.since_unix_s - one.since_unix_s);
  return html`
    <h1>Health</h1>
    ${issues.length === 0 && html`<${Card}><p class="verdict"><${State} of="healthy" word="Nothing is wrong." /></p></${Card}>`}
    ${issues.map((issue) => html`<section class=${`card issue ${issue.health}`} key=${issue.code + issue.target} data-code=${issue.code}>
      <header><h2><${State} of=${issue.health} word=${issue.what} /></h2></header>
      <dl class="facts">
        <div><dt>Concerns</dt><dd>${issue.target}</dd></div>
        <div><dt>Event</dt><dd><code>${issue.code}</code></dd></div>
        <div><dt>Since</dt><dd>${clock(issue.since_unix_s)} <span class="quiet">${seconds(Math.max(0, live.at_unix_ms / 1000 - issue.since_unix_s))} ago</span></dd></div>
        <div><dt>Means</dt><dd>${issue.meaning}</dd></div>
        <div><dt>Do</dt><dd><${Prose} text=${issue.action} /></dd></div>
      </dl>
    </section>`)}`;
};

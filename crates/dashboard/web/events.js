// What administrators did and what was refused, by the audit log of this server, and what began to be wrong.

import { html, useState } from "./dom.js";
import { Card, Choice, Failed, Filter, State, Table, matching, useAsked } from "./parts.js";
import { clock, spoken } from "./words.js";

const ASKED_EVERY_MS = 5000;
const OUTCOMES = { done: "ok", refused: "warning", failed: "unhealthy" };

// Issues that there are now, as events of the time when they began.
const issueEvents = (live) => live.health.issues.map((issue) => ({
  unix_s: issue.since_unix_s, kind: "issue", actor: "health", source: "", action: issue.code, target: issue.target, outcome: issue.health, detail: issue.what,
}));

const jobEvents = (live) => live.jobs.flatMap((job) => {
  const event = { kind: "job", actor: "server", source: job.server ?? "", action: spoken(job.kind), target: `${job.target}, job ${job.id}`, detail: "" };
  return [{ ...event, unix_s: job.started_unix_s, outcome: "began" }, ...(job.ended_unix_s ? [{ ...event, unix_s: job.ended_unix_s, outcome: job.state, detail: job.message }] : [])];
});

const KINDS = [["all", "All"], ["audit", "Audit"], ["job", "Jobs"], ["issue", "Issues"]];

export const Events = ({ live }) => {
  const [audit, error] = useAsked("/dashboard/audit", ASKED_EVERY_MS);
  const [kind, setKind] = useState("all");
  const [typed, setTyped] = useState("");
  const all = [...(audit?.events ?? []).map((event) => ({ ...event, kind: "audit" })), ...issueEvents(live), ...jobEvents(live)];
  const ofKind = all.filter((event) => kind === "all" || event.kind === kind).map((event, number) => ({ ...event, number }));
  const shown = matching(ofKind, typed, (event) => [event.actor, event.source, event.action, event.target, event.outcome, event.detail].join(" "));
  shown.sort((one, other) => other.unix_s - one.unix_s);
  return html`
    <h1>Events</h1>
    <${Card} title=${`Events of ${live.server}`}>
      <div class="tools">
        <${Choice} label="Kind" value=${kind} change=${setKind} choices=${KINDS} />
        <${Filter} label="Filter by action, target or outcome" value=${typed} change=${setTyped} />
      </div>
      <${Failed} why=${error} />
      <${Table} dense label="Events" rows=${shown.slice(0, 500)} keyOf=${(event) => `${event.kind} ${event.number}`} empty=${audit || error ? "There is none." : "…"} columns=${[
        { name: "Time", sort: (event) => event.unix_s, of: (event) => clock(event.unix_s) },
        { name: "Outcome", sort: (event) => event.outcome, of: (event) => html`<${State} of=${OUTCOMES[event.outcome] ?? event.outcome} word=${spoken(event.outcome)} />` },
        { name: "Action", sort: (event) => event.action, of: (event) => html`<b>${event.action}</b>` },
        { name: "Target", sort: (event) => event.target, of: (event) => html`<span class="path" title=${event.target}>${event.target || "–"}</span>` },
        { name: "By", sort: (event) => event.actor, of: (event) => event.actor },
        { name: "From", sort: (event) => event.source, of: (event) => event.source || "–" },
        { name: "Detail", of: (event) => html`<span class="detail">${event.detail || "–"}</span>` },
      ]} />
      ${shown.length > 500 && html`<p class="quiet">The newest 500 of ${shown.length} are shown.</p>`}
      ${audit?.is_cut && html`<p class="quiet">Older lines are in the file audit.log of the server's data directory.</p>`}
    </${Card}>`;
};

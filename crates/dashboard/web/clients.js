// Shares, and the sessions of clients: how each is carried and protected, and why it is not on RDMA.

import { html, useState } from "./dom.js";
import { changeGrant, changeShare, closeSession, createShare, deleteShare } from "./actions.js";
import { Card, Command, Failed, Filter, Menu, State, Table, matching, useAsked } from "./parts.js";
import { count, fill, micros, rate, seconds, size } from "./words.js";

const SHARES_EVERY_MS = 10000;

const Rdma = ({ live }) => {
  const { listeners, interfaces, no_devices } = live.rdma;
  return html`<${Card} title="RDMA">
    ${listeners.length > 0
      ? html`<p><${State} of="yes" word=${`Served at ${listeners.map((listener) => `${listener.address}${listener.node ? ` of ${listener.node}` : ""} (${listener.transport}, ${listener.provider})`).join("; ")}`} /></p>`
      : html`<p><${State} of="no" word="SMB Direct is not served" /></p>`}
    ${no_devices && html`<p class="quiet">No RDMA adapter: ${no_devices}.</p>`}
    <details><summary>Interfaces: ${interfaces.filter((one) => one.capable).length} of ${interfaces.length} with SMB Direct</summary>
    <${Table} dense label="Interfaces" rows=${interfaces} keyOf=${(one) => `${one.node ?? ""} ${one.name}`} empty="No interface is known." columns=${[
      ...(interfaces.some((one) => one.node) ? [{ name: "Server", of: (one) => one.node ?? "–" }] : []),
      { name: "Interface", of: (one) => one.name },
      { name: "Addresses", of: (one) => one.addresses.join(", ") },
      { name: "SMB Direct", of: (one) => html`<${State} of=${one.capable ? "yes" : "none"} word=${one.capable ? "Yes" : "No"} />` },
      { name: "Why", of: (one) => html`<span class="detail wide">${one.reason}</span>` },
    ]} /></details>
  </${Card}>`;
};

export const Clients = ({ live }) => {
  const [asked, error, load] = useAsked("/shares", SHARES_EVERY_MS);
  const [typed, setTyped] = useState("");
  const shares = asked ?? [];
  const figures = (share) => live.shares?.find((one) => one.name.toLowerCase() === share.name.toLowerCase());
  const shareColumns = [
    { name: "Share", of: (share) => html`<b>${share.name}</b>` },
    { name: "Volume", of: (share) => share.volume + (share.path ? ` : ${share.path}` : "") },
    { name: "Who", of: (share) => share.access.map((grant) => `${grant.who}: ${grant.access}`).join(", ") || "nobody" },
    { name: "Durability", of: (share) => share.durability },
    { name: "Options", of: (share) => [share.encrypt && "encrypted", share.read_only && "read only", share.continuously_available && "continuously available", share.scale_out && "scale-out"].filter(Boolean).join(", ") || "–" },
    { name: "Sessions", right: true, of: (share) => live.sessions.filter((session) => session.shares.some((name) => name.toLowerCase() === share.name.toLowerCase())).length },
    { name: "Operations/s", right: true, of: (share) => count(figures(share)?.operations_per_s) },
    { name: "Median", right: true, of: (share) => micros(figures(share)?.p50_us) },
    { name: "", of: (share) => html`<${Menu} label=${share.name} items=${[
      ["Grants …", () => changeGrant(share, load)],
      ["Options …", () => changeShare(share, load)],
      ["Access entries …", () => { location.hash = "accounts"; }],
      ["Delete …", () => deleteShare(share, load), true],
    ]} />` },
  ];
  const sessionColumns = [
    { name: "User", sort: (session) => session.user, of: (session) => html`<b>${session.user || "guest"}</b>` },
    ...(live.sessions.some((session) => session.server) ? [{ name: "Server", sort: (session) => session.server, of: (session) => session.server ?? "–" }] : []),
    { name: "Client", sort: (session) => session.client.join(), of: (session) => session.client.join(", ") },
    { name: "Shares", sort: (session) => session.shares.join(), of: (session) => session.shares.join(", ") || "–" },
    { name: "Transport", of: (session) => html`${[...new Set(session.channels.map((channel) => channel.transport))].join(", ")} <span class="quiet">${session.channels.length} ${session.channels.length === 1 ? "channel" : "channels"}</span>` },
    { name: "Dialect", of: (session) => session.dialect },
    { name: "Signing", of: (session) => session.signing || "none" },
    { name: "Cipher", of: (session) => session.encryption || "none" },
    { name: "Opens", right: true, sort: (session) => session.opens, of: (session) => session.opens },
    { name: "Read / write", right: true, sort: (session) => (session.read_bytes_per_s === null ? null : session.read_bytes_per_s + session.written_bytes_per_s), of: (session) => session.read_bytes_per_s === null ? "–" : html`${rate(session.read_bytes_per_s)} <span class="quiet">/</span> ${rate(session.written_bytes_per_s)}` },
    { name: "By RDMA", right: true, of: (session) => (session.rdma_bytes ? size(session.rdma_bytes) : "–") },
    { name: "Idle", right: true, sort: (session) => session.idle_s, of: (session) => seconds(session.idle_s) },
    { name: "Why not on RDMA", of: (session) => session.why_not_rdma ? html`<span class="detail">${session.why_not_rdma}</span>` : html`<${State} of="yes" word="It is" />` },
    { name: "", of: (session) => html`<${Menu} label=${`session ${session.id}`} items=${[["End …", () => closeSession(session), true]]} />` },
  ];
  const sessions = matching(live.sessions, typed, (session) => [session.user, ...session.client, ...session.shares].join(" "));
  return html`
    <h1>Shares and sessions</h1>
    <${Card} title="Shares" extra=${live.volumes.length > 0 && html`<button type="button" onClick=${() => createShare(live.volumes, load)}>Create a share</button>`}>
      <${Failed} why=${error} />
      <${Table} dense label="Shares" columns=${shareColumns} rows=${shares} keyOf=${(share) => share.name} empty=${asked ? "There is no share." : "…"} />
    </${Card}>
    <${Card} title=${`Sessions (${live.session_count})`}>
      ${live.sessions.length > 5 && html`<div class="tools"><${Filter} label="Filter by user, client or share" value=${typed} change=${setTyped} /></div>`}
      <${Table} dense label="Sessions" columns=${sessionColumns} rows=${sessions} keyOf=${(session) => `${session.server ?? ""} ${session.id}`} empty=${typed ? "No session has all of these words." : "No client is connected."} />
      ${live.session_count > live.sessions.length && html`<p class="quiet">Those that move most are shown; all: <${Command} line=${fill("cenote session list")} /></p>`}
    </${Card}>
    <${Rdma} live=${live} />`;
};

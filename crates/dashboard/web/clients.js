// Shares, and the sessions of clients: how each is carried and protected, and why it is not on RDMA.

import { html, useEffect, useState } from "./dom.js";
import { changeShare, createShare } from "./actions.js";
import { Card, Command, State, Table } from "./parts.js";
import { ask } from "./server.js";
import { count, micros, quoted, rate, seconds, size } from "./words.js";

const SHARES_EVERY_MS = 10000;

const Rdma = ({ live }) => {
  const { listeners, interfaces, no_devices } = live.rdma;
  return html`<${Card} title="RDMA">
    ${listeners.length > 0
      ? html`<p><${State} of="yes" word=${`Served at ${listeners.map((listener) => `${listener.address} (${listener.transport}, ${listener.provider})`).join(", ")}`} /></p>`
      : html`<p><${State} of="no" word="SMB Direct is not served" /></p>`}
    ${no_devices && html`<p class="quiet">${no_devices}</p>`}
    <${Table} label="Interfaces" rows=${interfaces} keyOf=${(one) => one.name} empty="No interface is known." columns=${[
      { name: "Interface", of: (one) => one.name },
      { name: "Addresses", of: (one) => one.addresses.join(", ") },
      { name: "SMB Direct", of: (one) => html`<${State} of=${one.capable ? "yes" : "none"} word=${one.capable ? "Yes" : "No"} />` },
      { name: "Why", of: (one) => one.reason },
    ]} />
  </${Card}>`;
};

export const Clients = ({ live }) => {
  const [shares, setShares] = useState([]);
  const [error, setError] = useState("");
  const load = () => ask("GET", "/shares").then((found) => { setShares(found); setError(""); }, (refused) => setError(refused.message));
  useEffect(() => {
    load();
    const timer = setInterval(load, SHARES_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
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
    { name: "", of: (share) => html`<button type="button" class="small" onClick=${() => changeShare(share, load)} aria-label=${`Change ${share.name}`}>Change</button>` },
  ];
  const sessionColumns = [
    { name: "User", of: (session) => html`<b>${session.user || "guest"}</b>` },
    { name: "Client", of: (session) => session.client.join(", ") },
    { name: "Shares", of: (session) => session.shares.join(", ") || "–" },
    { name: "Transport", of: (session) => html`${[...new Set(session.channels.map((channel) => channel.transport))].join(", ")} <span class="quiet">${session.channels.length} ${session.channels.length === 1 ? "channel" : "channels"}</span>` },
    { name: "Dialect", of: (session) => session.dialect },
    { name: "Signing", of: (session) => session.signing || "not demanded" },
    { name: "Cipher", of: (session) => session.encryption || "none" },
    { name: "Opens", right: true, of: (session) => session.opens },
    { name: "Read / write", right: true, of: (session) => html`${rate(session.read_bytes_per_s)} <span class="quiet">/</span> ${rate(session.written_bytes_per_s)}` },
    { name: "By RDMA", right: true, of: (session) => (session.rdma_bytes ? size(session.rdma_bytes) : "–") },
    { name: "Idle", right: true, of: (session) => seconds(session.idle_s) },
    { name: "Why not on RDMA", of: (session) => session.why_not_rdma ?? html`<${State} of="yes" word="It is" />` },
  ];
  return html`
    <h1>Shares and sessions</h1>
    <${Card} title="Shares" extra=${live.volumes.length > 0 && html`<button type="button" onClick=${() => createShare(live.volumes, load)}>Create a share</button>`}>
      ${error && html`<p class="error" role="alert">${error}</p>`}
      <${Table} label="Shares" columns=${shareColumns} rows=${shares} keyOf=${(share) => share.name} empty="There is no share." />
      ${shares[0] && html`<p>To take a share away, files stay: <${Command} line=${`cenote share delete ${quoted(shares[0].name)}`} /></p>`}
    </${Card}>
    <${Card} title=${`Sessions (${live.session_count})`}>
      <${Table} label="Sessions" columns=${sessionColumns} rows=${live.sessions} keyOf=${(session) => session.id} empty="No client is connected." />
      ${live.session_count > live.sessions.length && html`<p class="quiet">Those that move most are shown; all: <${Command} line="cenote session list" /></p>`}
      ${live.sessions[0] && html`<p>To end a session and close its files: <${Command} line=${`cenote session close ${live.sessions[0].id}`} /></p>`}
    </${Card}>
    <${Rdma} live=${live} />`;
};

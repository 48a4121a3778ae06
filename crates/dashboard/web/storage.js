// Pools and volumes: what is provisioned, allocated and used, copies by node.

import { html, useMemo, useState } from "./dom.js";
import { checkVolume, createVolume, deleteVolume, rebalancePool, resizeVolume, setReserve, warnOfVolume } from "./actions.js";
import { trendOf } from "./overview.js";
import { Bar, Card, Chart, Command, Filter, Menu, State, Table, matching, useAsked, withGaps } from "./parts.js";
import { fill, percent, share, size, spoken } from "./words.js";

const sizeOf = (bytes) => (bytes == null ? "–" : size(bytes));

// A sum of what is known; null as soon as one is not.
const sumOf = (all, of) => all.reduce((sum, one) => (sum === null || of(one) === null || of(one) === undefined ? null : sum + of(one)), 0);

// What was allocated in the last 30 days.
const Trend = ({ trend }) => {
  const data = useMemo(() => withGaps(trend.at_unix_s, [trend.allocated_bytes], 3600), [trend]);
  return html`<p>${trendOf(trend.trend)}</p>${trend.at_unix_s.length > 1 && html`<${Chart} title="Allocated, 30 days" series=${["Allocated"]} data=${data} write=${size} height=${140} span_s=${MONTH_S} />`}`;
};

const Pool = ({ pool, volumes, live, trend }) => {
  const provisioned = sumOf(volumes, (volume) => volume.size_bytes * volume.copies);
  const used = sumOf(volumes, (volume) => (volume.used_bytes == null ? null : volume.used_bytes * volume.copies));
  const nodes = Map.groupBy(live.disks.filter((disk) => disk.pool === pool.id), (disk) => disk.node || live.server);
  const room = pool.size_bytes - pool.reserve_bytes;
  const lines = [
    ["Provisioned, all copies", provisioned, `${size(provisioned)}, ${percent(provisioned, pool.size_bytes)} of the disks`],
    pool.allocated_bytes != null && ["Allocated to volumes", pool.allocated_bytes, `${size(pool.allocated_bytes)} of ${size(room)} for data`],
    used !== null && ["Used by files, all copies", used, size(used)],
  ].filter(Boolean);
  return html`<${Card} title=${`Pool ${pool.name}`} extra=${html`<span class="buttons"><${State} of=${pool.health} /><${Menu} label=${`pool ${pool.name}`} items=${[
      ["Rebalance …", () => rebalancePool(pool)],
      ["Change the reserve …", () => setReserve(pool)],
    ]} /></span>`}>
    <p>${pool.disks} disks, ${size(pool.size_bytes)}; ${size(pool.reserve_bytes)} (${pool.reserve_disks} ${pool.reserve_disks === 1 ? "disk" : "disks"}) kept free for repair, marked in the bars.</p>
    ${lines.map(([name, part, text]) => html`<div class="measure"><span>${name}</span><${Bar} part=${part} whole=${pool.size_bytes} marks=${[room]} warnAt=${name.startsWith("Provisioned") ? Infinity : (room / pool.size_bytes) * 0.9} label=${`${name}: ${text}`} /><span>${text}</span></div>`)}
    ${nodes.size > 1 && html`<${Table} dense label=${`Nodes of ${pool.name}`} empty="It has no disks." keyOf=${([name]) => name} rows=${[...nodes].sort(([one], [other]) => one.localeCompare(other, undefined, { numeric: true }))} columns=${[
      { name: "Node", sort: ([name]) => name, of: ([name]) => name },
      { name: "Disks", right: true, of: ([, disks]) => disks.length },
      { name: "Allocated", right: true, of: ([, disks]) => sizeOf(sumOf(disks, (disk) => disk.allocated_bytes)) },
      { name: "Size", right: true, of: ([, disks]) => size(sumOf(disks, (disk) => disk.size_bytes)) },
    ]} />`}
    ${trend && html`<${Trend} trend=${trend} />`}
  </${Card}>`;
};

const columnsOf = (live) => [
  { name: "Volume", sort: (volume) => volume.name, of: (volume) => html`<b class="path name" title=${volume.name}><bdi>${volume.name}</bdi></b>` },
  { name: "State", sort: (volume) => volume.status, of: (volume) => html`<${State} of=${volume.status} />` },
  { name: "Owner", sort: (volume) => volume.owner, of: (volume) => volume.owner ?? (live.cluster?.name ? "–" : live.server) },
  live.pools.length > 1 && { name: "Pool", of: (volume) => live.pools.find((pool) => pool.id === volume.pool)?.name ?? "–" },
  { name: "Resiliency", sort: (volume) => volume.resiliency, of: (volume) => `${spoken(volume.resiliency).replace(" way", "-way")}, ${volume.provisioning}` },
  { name: "Copies up to date", right: true, of: (volume) => (volume.in_sync_copies ? `${volume.in_sync_copies} of ${volume.copies}` : "–") },
  { name: "Used", sort: (volume) => (volume.used_bytes == null ? null : volume.used_bytes / volume.size_bytes), of: (volume) => (volume.used_bytes == null
    ? html`– <span class="quiet">of ${size(volume.size_bytes)}</span>`
    : html`<span class="used"><${Bar} part=${volume.used_bytes} whole=${volume.size_bytes} warnAt=${volume.warn_at_percent / 100} marks=${[(volume.size_bytes * volume.warn_at_percent) / 100]} label=${share(volume.used_bytes, volume.size_bytes)} /> ${share(volume.used_bytes, volume.size_bytes)}</span>`) },
  { name: "Pool space", right: true, about: "What it takes of the pool, all copies", sort: (volume) => volume.footprint_bytes, of: (volume) => (volume.footprint_bytes == null ? "–" : size(volume.footprint_bytes)) },
  { name: "Still to copy", right: true, of: (volume) => (volume.stale_bytes ? size(volume.stale_bytes) : "–") },
  { name: "", of: (volume) => html`<${Menu} label=${volume.name} items=${[
    ["Resize …", () => resizeVolume(volume)],
    ["Change the warning …", () => warnOfVolume(volume)],
    ["Check …", () => checkVolume(volume)],
    ["Delete …", () => deleteVolume(volume), true],
  ]} />` },
].filter(Boolean);

// A filter for fewer is in the way.
const FILTER_FROM = 10;
// A trend has a point an hour.
const TRENDS_EVERY_MS = 300000;
const MONTH_S = 30 * 86400;

export const Storage = ({ live }) => {
  const [trends] = useAsked("/dashboard/capacity", TRENDS_EVERY_MS);
  const [typed, setTyped] = useState("");
  const shown = matching(live.volumes, typed, (volume) => [volume.name, volume.status, volume.owner, volume.resiliency].join(" "));
  return html`
    <h1>Pool and volumes</h1>
    ${live.pools.length === 0 && html`<${Card} title="No pool"><p>A pool is made of disks that hold nothing: <${Command} line=${fill("cenote pool create NAME DISK...")} /></p></${Card}>`}
    ${live.pools.map((pool) => html`<${Pool} key=${pool.id} pool=${pool} live=${live} trend=${trends?.find((one) => one.pool === pool.name)} volumes=${live.volumes.filter((volume) => volume.pool === pool.id)} />`)}
    <${Card} title="Volumes" extra=${live.pools.length > 0 && html`<button type="button" onClick=${() => createVolume(live.pools)}>Create a volume</button>`}>
      ${live.volumes.length >= FILTER_FROM && html`<div class="tools"><${Filter} label="Name, state, owner or resiliency" value=${typed} change=${setTyped} />${typed && html`<span class="quiet">${shown.length} of ${live.volumes.length}</span>`}</div>`}
      <${Table} dense label="Volumes" columns=${columnsOf(live)} rows=${shown} keyOf=${(volume) => volume.id} empty=${typed ? "No volume has all of these words." : "There is no volume."} />
    </${Card}>`;
};

// Pools and volumes: promised against used, copies by node, what they take.

import { html } from "./dom.js";
import { createVolume, resizeVolume } from "./actions.js";
import { Bar, Card, Command, State, Table } from "./parts.js";
import { percent, quoted, size, spoken } from "./words.js";

const Pool = ({ pool, live }) => {
  const volumes = live.volumes.filter((volume) => volume.pool === pool.id);
  const promised = volumes.reduce((sum, volume) => sum + volume.size_bytes * volume.copies, 0);
  const used = volumes.reduce((sum, volume) => sum + (volume.used_bytes ?? 0) * volume.copies, 0);
  const nodes = Map.groupBy(live.disks.filter((disk) => disk.pool === pool.id), (disk) => disk.node || live.server);
  const room = pool.size_bytes - pool.reserve_bytes;
  const lines = [
    ["Promised to volumes, all copies", promised, `${size(promised)}, ${percent(promised, pool.size_bytes)} of the disks`],
    ["Given to volumes", pool.allocated_bytes, `${size(pool.allocated_bytes)} of ${size(room)} that data may take`],
    ["Used by files, all copies", used, size(used)],
  ];
  return html`<${Card} title=${`Pool ${pool.name}`} extra=${html`<${State} of=${pool.health} />`}>
    <p>${pool.disks} disks, ${size(pool.size_bytes)}; ${size(pool.reserve_bytes)} (${pool.reserve_disks} ${pool.reserve_disks === 1 ? "disk" : "disks"}) kept free for repair, marked in the bars.</p>
    ${lines.map(([name, part, text]) => html`<div class="measure"><span>${name}</span><${Bar} part=${part} whole=${pool.size_bytes} marks=${[room]} label=${`${name}: ${text}`} /><span>${text}</span></div>`)}
    <${Table} label=${`Nodes of ${pool.name}`} empty="It has no disks." keyOf=${([name]) => name} rows=${[...nodes]} columns=${[
      { name: "Node", of: ([name]) => name },
      { name: "Disks", right: true, of: ([, disks]) => disks.length },
      { name: "Of copies it holds", right: true, of: ([, disks]) => size(disks.reduce((sum, disk) => sum + (disk.allocated_bytes ?? 0), 0)) },
      { name: "Size", right: true, of: ([, disks]) => size(disks.reduce((sum, disk) => sum + disk.size_bytes, 0)) },
    ]} />
    <p>To even out its disks: <${Command} line=${`cenote pool rebalance ${quoted(pool.name)}`} /> To keep more or less for repair: <${Command} line=${`cenote pool set ${quoted(pool.name)} --reserve-disks N`} /></p>
  </${Card}>`;
};

export const Storage = ({ live }) => {
  // Only the node that serves a volume knows how full it is, and may not have answered.
  const isKnown = (volume) => volume.used_bytes !== undefined;
  const used = (volume) => (isKnown(volume)
    ? html`<${Bar} part=${volume.used_bytes} whole=${volume.size_bytes} marks=${[(volume.size_bytes * volume.warn_at_percent) / 100]} label=${`${size(volume.used_bytes)} of ${size(volume.size_bytes)}`} /><small>${size(volume.used_bytes)} of ${size(volume.size_bytes)}</small>`
    : html`<span class="quiet">not known</span>`);
  const columns = [
    { name: "Volume", of: (volume) => html`<b>${volume.name}</b>` },
    { name: "State", of: (volume) => html`<${State} of=${volume.status} />` },
    { name: "Owner", of: (volume) => volume.owner ?? live.server },
    { name: "Pool", of: (volume) => live.pools.find((pool) => pool.id === volume.pool)?.name ?? "–" },
    { name: "Resiliency", of: (volume) => spoken(volume.resiliency) },
    { name: "Copies up to date", right: true, of: (volume) => `${volume.in_sync_copies ?? "–"} of ${volume.copies}` },
    { name: "Provisioning", of: (volume) => spoken(volume.provisioning) },
    { name: "Used", of: used },
    { name: "Footprint", right: true, about: "What it takes of the pool, all copies", of: (volume) => size(volume.footprint_bytes) },
    { name: "Still to copy", right: true, of: (volume) => (volume.stale_bytes ? size(volume.stale_bytes) : "–") },
    { name: "", of: (volume) => html`<button type="button" class="small" onClick=${() => resizeVolume(volume)} aria-label=${`Resize ${volume.name}`}>Resize</button>` },
  ];
  const first = live.volumes[0]?.name;
  return html`
    <h1>Pool and volumes</h1>
    ${live.pools.length === 0 && html`<${Card} title="No pool"><p>A pool is made of disks that hold nothing: <${Command} line="cenote pool create NAME DISK..." /></p></${Card}>`}
    ${live.pools.map((pool) => html`<${Pool} key=${pool.id} pool=${pool} live=${live} />`)}
    <${Card} title="Volumes" extra=${live.pools.length > 0 && html`<button type="button" onClick=${() => createVolume(live.pools)}>Create a volume</button>`}>
      <${Table} label="Volumes" columns=${columns} rows=${live.volumes} keyOf=${(volume) => volume.id} empty="There is no volume." />
      ${first && html`<p>To compare all copies: <${Command} line=${`cenote volume check ${quoted(first)}`} /> To destroy a volume and all data on it: <${Command} line=${`cenote volume delete ${quoted(first)}`} /></p>`}
    </${Card}>`;
};

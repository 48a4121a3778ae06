// All disks on one page: what they hold, how they wear, what was found wrong, how fast they are beside their peers.

import { html } from "./dom.js";
import { addDisk, locateDisk, replaceDisk, retireDisk, unretireDisk } from "./actions.js";
import { Bar, Card, Command, State, Table } from "./parts.js";
import { baseName, count, micros, quoted, rate, size } from "./words.js";

const pair = (read, write) => html`${read} <span class="quiet">/</span> ${write}`;

const peers = (disk) => {
  if (disk.against_peers === null) return "–";
  const times = `${disk.against_peers.toFixed(1)} ×`;
  return disk.against_peers >= 2 ? html`<${State} of="warning" word=${`${times}, slow`} />` : times;
};

const wear = (disk) => {
  const device = disk.device_health;
  if (!device) return "–";
  const parts = [];
  if (device.used_percent !== null) parts.push(`${device.used_percent} % used`);
  if (device.spare_percent !== null) parts.push(`${device.spare_percent} % spare`);
  if (device.written_bytes !== null) parts.push(`${size(device.written_bytes)} written`);
  if (device.passed === false) return html`<${State} of="unhealthy" word="predicts its failure" /> ${parts.join(", ")}`;
  return parts.join(", ") || "–";
};

const faults = (disk) => {
  const { medium_errors, corrupt_blocks, repaired_blocks, lost_writes, errors } = disk.counters;
  const parts = [
    [medium_errors, "medium errors"],
    [corrupt_blocks - medium_errors, "bad checksums"],
    [lost_writes, "lost writes"],
    [errors, "failed operations"],
  ].filter(([found]) => found > 0);
  if (parts.length === 0) return "none";
  return html`<${State} of="warning" word=${parts.map(([found, what]) => `${count(found)} ${what}`).join(", ")} />${repaired_blocks ? html` <span class="quiet">${count(repaired_blocks)} repaired</span>` : ""}`;
};

// Another server tells more of its own disks.
const local = (of) => (disk) => (disk.is_local ? of(disk) : html`<span class="quiet">ask ${disk.node || "its node"}</span>`);

export const Disks = ({ live }) => {
  const poolOf = (disk) => live.pools.find((pool) => pool.id === disk.pool)?.name ?? "–";
  const columns = [
    { name: "Disk", of: (disk) => html`<b>${baseName(disk.path)}</b><small class="path">${disk.path}${disk.fault_domain ? `, in ${disk.fault_domain}` : ""}</small>` },
    { name: "State", of: (disk) => html`<${State} of=${disk.status === "ok" ? disk.health : disk.status} />` },
    { name: "Pool", of: poolOf },
    { name: "Given", about: "To volumes", of: (disk) => html`<${Bar} part=${disk.allocated_bytes} whole=${disk.size_bytes} label=${`${size(disk.allocated_bytes)} of ${size(disk.size_bytes)}`} /><small>${size(disk.allocated_bytes)} of ${size(disk.size_bytes)}</small>` },
    { name: "Wear", about: "What the device says of itself", of: local(wear) },
    { name: "Faults", about: "Found by this server since it has the disk", of: local(faults) },
    { name: "Read / write", right: true, of: local((disk) => pair(rate(disk.read_bytes_per_s), rate(disk.write_bytes_per_s))) },
    { name: "Median", right: true, about: "Of reads and writes in the last seconds", of: local((disk) => pair(micros(disk.read.p50_us), micros(disk.write.p50_us))) },
    { name: "99 %", right: true, about: "So many take at most this long", of: local((disk) => pair(micros(disk.read.p99_us), micros(disk.write.p99_us))) },
    { name: "Beside peers", right: true, about: "Its median by that of like disks of its pool", of: local(peers) },
    { name: "", of: (disk) => html`<span class="buttons">
      <button type="button" class="small" onClick=${() => locateDisk(disk)} aria-label=${`Locate ${disk.path}`}>Locate</button>
      <button type="button" class="small" onClick=${() => replaceDisk(disk)} aria-label=${`Replace ${disk.path}`}>Replace</button>
      ${disk.usage === "retired"
        ? html`<button type="button" class="small" onClick=${() => unretireDisk(disk)} aria-label=${`Keep ${disk.path}`}>Keep</button>`
        : html`<button type="button" class="small" onClick=${() => retireDisk(disk)} aria-label=${`Retire ${disk.path}`}>Retire</button>`}
    </span>` },
  ];
  const faulty = live.disks.filter((disk) => disk.counters && disk.counters.corrupt_blocks + disk.counters.lost_writes > 0);
  return html`
    <h1>Disks</h1>
    <${Card} title=${`${live.disks.length} disks`} extra=${html`<button type="button" onClick=${() => addDisk(live.pools)}>Add a disk</button>`}>
      <${Table} label="Disks" columns=${columns} rows=${live.disks} keyOf=${(disk) => disk.id} empty="No disk belongs to a pool yet." rowClass=${(disk) => (disk.health === "unhealthy" ? "bad" : "")} />
      ${faulty.length > 0 && html`<p>When you have seen to faults: ${faulty.map((disk) => html`<${Command} line=${`cenote disk acknowledge ${quoted(disk.path)}`} /> `)}</p>`}
      <p>What a disk holds: <${Command} line="cenote disk inspect PATH" /> To make a disk that is in no pool hold nothing: <${Command} line="cenote disk erase PATH" /></p>
    </${Card}>`;
};

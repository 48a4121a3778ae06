// All disks on one page, a line each: what they hold, how they wear, what was found wrong, how fast they are beside like disks.

import { html, useState } from "./dom.js";
import { acknowledgeDisk, addDisk, locateDisk, replaceDisk, retireDisk, unretireDisk } from "./actions.js";
import { Bar, Card, Choice, Command, Filter, Menu, State, Table, matching } from "./parts.js";
import { baseName, count, fill, micros, percent, rate, share, size } from "./words.js";

const pair = (read, write) => read === "–" && write === "–" ? "–" : html`${read} <span class="quiet">/</span> ${write}`;

const peers = (disk) => {
  if (disk.against_peers === null) return "–";
  const times = `${disk.against_peers.toFixed(1)} ×`;
  return disk.against_peers >= 2 ? html`<${State} of="warning" word=${`${times}, slow`} />` : times;
};

// What the device says of itself (SMART).
const smart = (disk) => {
  const device = disk.device_health;
  if (!device) return "–";
  const parts = [];
  if (device.used_percent !== null) parts.push(`${device.used_percent} % worn`);
  if (device.spare_percent !== null && device.spare_percent < 100) parts.push(`${device.spare_percent} % spare`);
  if (device.media_errors) parts.push(`${count(device.media_errors)} media errors`);
  const whole = [device.spare_percent !== null && `${device.spare_percent} % of its spare blocks are left`, device.written_bytes !== null && `${size(device.written_bytes)} written in its life`].filter(Boolean).join(", ");
  const text = html`<span title=${whole}>${parts.join(", ") || whole}</span>`;
  if (device.passed === false) return html`<${State} of="unhealthy" word="Predicts its failure" /> ${text}`;
  return parts.length || whole ? text : device.passed ? html`<${State} of="ok" word="Passed" />` : "–";
};

const errorsOf = ({ counters }) => counters.corrupt_blocks + counters.lost_writes + counters.errors;

const faults = (disk) => {
  const { medium_errors, corrupt_blocks, repaired_blocks, lost_writes, errors } = disk.counters;
  const parts = [
    [medium_errors, "medium errors"],
    [corrupt_blocks - medium_errors, "bad checksums"],
    [lost_writes, "lost writes"],
    [errors, "failed operations"],
  ].filter(([found]) => found > 0);
  if (parts.length === 0) return "none";
  return html`<span class="detail"><${State} of="warning" word=${parts.map(([found, what]) => `${count(found)} ${what}`).join(", ")} />${repaired_blocks ? html` <span class="quiet">${count(repaired_blocks)} repaired</span>` : ""}</span>`;
};

const stateOf = (disk) => (disk.status === "ok" ? disk.health : disk.status);
const RANK = { unhealthy: 0, io_error: 0, lost_communication: 0, unrecognized_metadata: 0, warning: 1, retiring: 2, healthy: 3 };

// The disk's server may not have answered: what only it knows is absent.
const known = (of) => (disk) => (disk.counters ? of(disk) : "–");
const measured = (of) => (disk) => (disk.read_bytes_per_s === null ? "–" : of(disk));

// What needs attention first, then server by server.
const inOrder = (disks) => disks.toSorted((one, other) => (RANK[stateOf(one)] ?? 1) - (RANK[stateOf(other)] ?? 1) || `${one.node} ${one.path}`.localeCompare(`${other.node} ${other.path}`, "en", { numeric: true }));

const folder = (path) => path.slice(0, -baseName(path).length);

const columnsOf = (poolOf, isCluster, hasSerials) => [
  { name: "Disk", sort: (disk) => baseName(disk.path), of: (disk) => html`<b class="path name" title=${disk.path}><bdi>${baseName(disk.path)}</bdi></b> <span class="path folder quiet" title=${`${disk.path}${disk.fault_domain ? `, in ${disk.fault_domain}` : ""}`}>${folder(disk.path)}</span>` },
  { name: "State", sort: (disk) => RANK[stateOf(disk)] ?? 1, of: (disk) => html`<${State} of=${stateOf(disk)} />` },
  { name: "Errors", about: "Found by its server since it has the disk", sort: (disk) => (disk.counters ? errorsOf(disk) : null), of: known(faults) },
  isCluster && { name: "Server", sort: (disk) => disk.node, of: (disk) => disk.node || "–" },
  hasSerials && { name: "Serial", sort: (disk) => disk.serial ?? null, of: (disk) => disk.serial ?? "–" },
  { name: "Pool", sort: poolOf, of: poolOf },
  { name: "Allocated", about: "To volumes", sort: (disk) => (disk.size_bytes && disk.allocated_bytes != null ? disk.allocated_bytes / disk.size_bytes : null), of: (disk) => (disk.allocated_bytes == null ? "–" : html`<span class="used"><${Bar} part=${disk.allocated_bytes} whole=${disk.size_bytes} warnAt=${0.9} label=${share(disk.allocated_bytes, disk.size_bytes)} /> ${share(disk.allocated_bytes, disk.size_bytes)}</span>`) },
  { name: "SMART", about: "What the device says of itself", sort: (disk) => disk.device_health?.used_percent ?? null, of: known(smart) },
  { name: "Read / write", right: true, sort: (disk) => (disk.read_bytes_per_s === null ? null : disk.read_bytes_per_s + disk.write_bytes_per_s), of: measured((disk) => pair(rate(disk.read_bytes_per_s), rate(disk.write_bytes_per_s))) },
  { name: "Median", right: true, about: "Latency of reads and writes in the last seconds", sort: (disk) => disk.write.p50_us ?? disk.read.p50_us, of: measured((disk) => pair(micros(disk.read.p50_us), micros(disk.write.p50_us))) },
  { name: "99 %", right: true, about: "99 of 100 take at most this long", sort: (disk) => disk.write.p99_us ?? disk.read.p99_us, of: measured((disk) => pair(micros(disk.read.p99_us), micros(disk.write.p99_us))) },
  { name: "Vs. others", right: true, about: "Its median latency by that of like disks of its pool", sort: (disk) => disk.against_peers, of: measured(peers) },
  { name: "", of: (disk) => html`<${Menu} label=${disk.path} items=${[
    ["Locate …", () => locateDisk(disk)],
    disk.counters && errorsOf(disk) > 0 && ["Acknowledge errors …", () => acknowledgeDisk(disk)],
    ["Replace …", () => replaceDisk(disk)],
    disk.usage === "retired" ? ["Keep …", () => unretireDisk(disk)] : ["Retire …", () => retireDisk(disk), true],
  ]} />` },
].filter(Boolean);

export const Disks = ({ live: { disks, pools, cluster, server } }) => {
  const isCluster = Boolean(cluster?.name);
  const [typed, setTyped] = useState("");
  const [by, setBy] = useState("none");
  const poolOf = (disk) => pools.find((pool) => pool.id === disk.pool)?.name ?? "–";
  const shown = matching(inOrder(disks), typed, (disk) => [disk.path, disk.serial, disk.node, stateOf(disk), disk.usage, poolOf(disk), disk.fault_domain].join(" "));
  const size_bytes = disks.reduce((sum, disk) => sum + disk.size_bytes, 0);
  const allocated = disks.reduce((sum, disk) => sum + (disk.allocated_bytes ?? 0), 0);
  const groups = { server: (disk) => disk.node || server, pool: poolOf, state: (disk) => stateOf(disk).replaceAll("_", " ") };
  return html`
    <h1>Disks</h1>
    <${Card} title=${`${disks.length} disks, ${size(size_bytes)}, ${percent(allocated, size_bytes)} allocated`} extra=${html`<button type="button" onClick=${() => addDisk(pools)}>Add a disk</button>`}>
      <div class="tools">
        <${Filter} label="Path, serial, server, state or pool" value=${typed} change=${setTyped} />
        <span class="quiet">Group by</span>
        <${Choice} label="Group by" value=${by} change=${setBy} choices=${[["none", "Nothing"], isCluster && ["server", "Server"], ["pool", "Pool"], ["state", "State"]].filter(Boolean)} />
        ${typed && html`<span class="quiet">${shown.length} of ${disks.length}</span>`}
      </div>
      <${Table} dense label="Disks" columns=${columnsOf(poolOf, isCluster, disks.some((disk) => disk.serial && !disk.path.includes(disk.serial)))} rows=${shown} keyOf=${(disk) => disk.id} group=${groups[by]} empty=${typed ? "No disk has all of these words." : "No disk belongs to a pool yet."} rowClass=${(disk) => (disk.health === "unhealthy" ? "bad" : "")} />
      <p class="quiet">What is on a disk, without a server: <${Command} line=${fill("cenote disk inspect PATH")} /></p>
    </${Card}>`;
};

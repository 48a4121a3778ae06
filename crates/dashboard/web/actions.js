// What can be done here: a form, the command that does the same, and a name to type if something is destroyed.

import { html, useEffect, useRef, useState } from "./dom.js";
import { Command } from "./parts.js";
import { ask, takeUnconfirmed } from "./server.js";
import { fill, parseSize, size } from "./words.js";

let open = () => {};

// An action: { title, text, fields, confirm, command(values), run(values), done(answer), button, danger }.
// A field: { name, label, kind: "text" | "password" | "select" | "check", choices, value, hint, required }.
export const act = (action) => open(action);

const initial = (action) => Object.fromEntries((action.fields ?? []).map((field) => [field.name, field.value ?? (field.kind === "check" ? false : "")]));

const Field = ({ field, value, change }) => {
  const id = `field-${field.name}`;
  const set = (event) => change(field.kind === "check" ? event.target.checked : event.target.value);
  return html`<div class="field">
    <label for=${id}>${field.label}</label>
    ${field.kind === "select"
      ? html`<select id=${id} value=${value} onChange=${set}>${field.choices.map(([name, label]) => html`<option value=${name} selected=${name === value}>${label}</option>`)}</select>`
      : field.kind === "check"
        ? html`<input id=${id} type="checkbox" checked=${value} onChange=${set} />`
        : html`<input id=${id} type=${field.kind === "password" ? "password" : "text"} value=${value} onInput=${set} autocomplete=${field.kind === "password" ? "new-password" : "off"} spellcheck="false" required=${field.required} placeholder=${field.example} />`}
    ${field.hint && html`<small>${field.hint}</small>`}
  </div>`;
};

// Stands once in the page, and shows the action that was begun.
export const Actions = () => {
  const [action, setAction] = useState(null);
  const [values, setValues] = useState({});
  const [typed, setTyped] = useState("");
  const [state, setState] = useState({});
  const dialog = useRef(null);
  open = (next) => {
    setAction(next);
    setValues(initial(next));
    setTyped("");
    setState({});
  };
  useEffect(() => {
    if (action && !dialog.current.open) dialog.current.showModal();
    if (!action && dialog.current.open) dialog.current.close();
  }, [action]);
  const close = () => setAction(null);
  const submit = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    takeUnconfirmed();
    try {
      const answer = await action.run(values);
      setState({ answer: action.done?.(answer, values) ?? "Done.", unconfirmed: takeUnconfirmed() });
    } catch (error) {
      setState({ error: error.message });
    }
  };
  const isConfirmed = !action?.confirm || typed === action.confirm;
  // The browser tells of a closed dialog a moment later, when another action may be shown already.
  const closed = () => dialog.current.open || close();
  return html`<dialog ref=${dialog} onClose=${closed} aria-labelledby="action-title">
    ${action && html`<form onSubmit=${submit}>
      <h2 id="action-title">${action.title}</h2>
      ${action.text && html`<p>${action.text}</p>`}
      ${state.answer !== undefined
        ? html`<div class="answer" role="status">${state.answer}</div>
          ${state.unconfirmed && html`<p class="error" role="alert">The change is not confirmed by ${state.unconfirmed}: the old accounts and shares may stay in force there until the cluster's records can be read. To cut somebody off there at once, stop the server.</p>`}
          <p class="buttons"><button type="button" onClick=${close} autofocus>Close</button></p>`
        : html`${(action.fields ?? []).map((field) => html`<${Field} field=${field} value=${values[field.name]} change=${(value) => setValues({ ...values, [field.name]: value })} />`)}
          ${action.confirm && html`<div class="field"><label for="confirm">Type <b>${action.confirm}</b> to go on</label>
            <input id="confirm" type="text" value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck="false" /></div>`}
          ${action.command && html`<p class="same">The command line does the same:</p>
          <p><${Command} line=${action.command(values)} /></p>`}
          ${state.error && html`<p class="error" role="alert">${state.error}</p>`}
          <p class="buttons"><button type="button" onClick=${close}>Cancel</button>
            <button type="submit" class=${action.danger ? "danger" : "main"} disabled=${!isConfirmed || state.busy}>${state.busy ? "…" : action.button}</button></p>`}
    </form>`}
  </dialog>`;
};

// A size of a field, or a refusal that says how sizes are written.
export function sizeOf(text) {
  const bytes = parseSize(text);
  if (bytes === null) throw new Error(`'${text}' is no size, such as 10GiB.`);
  return bytes;
}

// A percentage of a field.
function percentOf(text) {
  if (!/^\d{1,3}$/.test(text.trim()) || Number(text) < 1 || Number(text) > 100) throw new Error(`'${text}' is no whole number of percent from 1 to 100.`);
  return Number(text);
}

const at = (word) => encodeURIComponent(word);
const started = (answer) => html`<p>Job ${answer.job} has begun. <a href="#jobs">Jobs</a> shows how far it is.</p>`;
export const namesOf = (all) => all.map((one) => [one.name, one.name]);

const pathFields = [
  { name: "path", label: "File or device", required: true, example: "/dev/sdd", hint: "Absolute. It must hold nothing." },
  { name: "create", label: "Make a file of", example: "10GiB", hint: "Only if there is no file yet." },
];
const pathBody = (values) => ({ path: values.path.trim(), ...(values.create.trim() ? { create_size_bytes: sizeOf(values.create) } : {}) });
const pathWords = (values) => ({ path: values.path.trim(), create: values.create.trim() });

// --- Disks ---

export const addDisk = (pools) => act({
  title: "Add a disk",
  text: "The disk joins the pool of this server. Data moves to it when the pool is rebalanced, or as it is written.",
  fields: [...pathFields, ...(pools.length > 1 ? [{ name: "pool", label: "Pool", kind: "select", choices: namesOf(pools), value: pools[0].name }] : [])],
  command: (values) => fill("cenote disk add PATH [--create SIZE] [--pool POOL]", { ...pathWords(values), pool: values.pool }),
  run: (values) => ask("POST", "/disks", { ...pathBody(values), ...(values.pool ? { pool: values.pool } : {}) }),
  done: (answer) => `Disk ${answer.name} is in the pool.`,
  button: "Add",
});

export const retireDisk = (disk) => act({
  title: `Retire ${disk.path}`,
  text: "Everything on it moves to the other disks; then it leaves the pool. All data stays available.",
  command: () => fill("cenote disk retire DISK", { disk: disk.path }),
  run: () => ask("POST", `/disks/${disk.id}/retire`),
  done: started,
  button: "Retire",
});

export const unretireDisk = (disk) => act({
  title: `Keep ${disk.path}`,
  text: "It may be given data again.",
  command: () => fill("cenote disk retire DISK --undo", { disk: disk.path }),
  run: () => ask("DELETE", `/disks/${disk.id}/retire`),
  button: "Keep",
});

export const replaceDisk = (disk) => act({
  title: `Replace ${disk.path}`,
  text: "Another disk is added, everything moves to it, and the old one leaves the pool.",
  fields: pathFields,
  command: (values) => fill("cenote disk replace OLD PATH [--create SIZE]", { old: disk.path, ...pathWords(values) }),
  run: (values) => ask("POST", `/disks/${disk.id}/replace`, pathBody(values)),
  done: started,
  button: "Replace",
});

export const locateDisk = (disk) => act({
  title: `Locate ${disk.path}`,
  text: "The light of its slot is switched, if it has one.",
  fields: [{ name: "light", label: "Light", kind: "select", choices: [["on", "On"], ["off", "Off"]], value: "on" }],
  command: (values) => fill("cenote disk locate DISK [--off]", { disk: disk.path, off: values.light === "off" }),
  run: (values) => ask("POST", `/disks/${disk.id}/locate`, { on: values.light === "on" }),
  done: (found) => html`<p>${found.led ? "Its light was switched." : found.message}</p>
    <p>${[found.device && `Device ${found.device}`, found.serial && `serial number ${found.serial}`, found.slot && `slot ${found.slot}`].filter(Boolean).join(", ")}</p>`,
  button: "Locate",
});

export const acknowledgeDisk = (disk) => act({
  title: `Acknowledge the errors of ${disk.path ?? disk.id}`,
  text: "Health then tells only of errors that come after these. What was damaged stays listed with its volume until it is repaired.",
  command: () => fill("cenote disk acknowledge DISK", { disk: disk.path ?? disk.id }),
  run: () => ask("POST", `/disks/${disk.id}/acknowledge`),
  button: "Acknowledge",
});

// --- Pools and volumes ---

export const rebalancePool = (pool) => act({
  title: `Rebalance ${pool.name}`,
  text: "Data moves until all disks are filled evenly. Clients come first.",
  command: () => fill("cenote pool rebalance NAME", pool),
  run: () => ask("POST", `/pools/${at(pool.name)}/rebalance`),
  done: started,
  button: "Rebalance",
});

export const setReserve = (pool) => act({
  title: `Reserve of ${pool.name}`,
  text: "Space that is kept free, so that the loss of a disk can be repaired at once.",
  fields: [{ name: "reserve_disks", label: "The size of the largest disks, how many", required: true, value: String(pool.reserve_disks) }],
  command: (values) => fill("cenote pool set NAME --reserve-disks NUMBER", { ...values, name: pool.name }),
  run: (values) => {
    if (!/^\d{1,4}$/.test(values.reserve_disks.trim())) throw new Error(`'${values.reserve_disks}' is no number of disks.`);
    return ask("PATCH", `/pools/${at(pool.name)}`, { reserve_disks: Number(values.reserve_disks) });
  },
  button: "Change",
});

const RESILIENCIES = [["two-way-mirror", "Two-way mirror: 2 copies"], ["three-way-mirror", "Three-way mirror: 3 copies"], ["simple", "Simple: one copy, lost with its disk"]];

export const createVolume = (pools) => act({
  title: "Create a volume",
  fields: [
    { name: "name", label: "Name", required: true },
    { name: "size", label: "Size", required: true, example: "100GiB" },
    { name: "resiliency", label: "Resiliency", kind: "select", value: "two-way-mirror", choices: RESILIENCIES },
    { name: "fixed", label: "Take all of its space from the pool now", kind: "check", hint: "Otherwise it takes space as it is written (thin)." },
    ...(pools.length > 1 ? [{ name: "pool", label: "Pool", kind: "select", choices: namesOf(pools), value: pools[0].name }] : []),
  ],
  command: (values) => fill("cenote volume create NAME --size SIZE --resiliency RESILIENCY [--fixed] [--pool POOL]", values),
  run: (values) => ask("POST", "/volumes", { name: values.name, size_bytes: sizeOf(values.size), resiliency: values.resiliency.replaceAll("-", "_"), provisioning: values.fixed ? "fixed" : "thin", ...(values.pool ? { pool: values.pool } : {}) }),
  done: (answer) => `Volume ${answer.name} is there. A share gives clients a way to it.`,
  button: "Create",
});

export const resizeVolume = (volume) => act({
  title: `Resize ${volume.name}`,
  text: `It has ${size(volume.size_bytes)}. A volume only grows.`,
  fields: [{ name: "size", label: "New size", required: true, example: "200GiB" }],
  command: (values) => fill("cenote volume resize NAME --size SIZE", { name: volume.name, ...values }),
  run: (values) => ask("PATCH", `/volumes/${at(volume.name)}`, { size_bytes: sizeOf(values.size) }),
  button: "Resize",
});

export const warnOfVolume = (volume) => act({
  title: `Warning of ${volume.name}`,
  text: "Health warns when this much of the volume is used.",
  fields: [{ name: "warn_at", label: "Percent", required: true, value: String(volume.warn_at_percent) }],
  command: (values) => fill("cenote volume set NAME --warn-at NUMBER", { name: volume.name, ...values }),
  run: (values) => ask("PATCH", `/volumes/${at(volume.name)}`, { warn_at_percent: percentOf(values.warn_at) }),
  button: "Change",
});

export const checkVolume = (volume) => act({
  title: `Check ${volume.name}`,
  text: "Metadata, allocation and all copies are compared while clients go on. Nothing is changed.",
  command: () => fill("cenote volume check NAME", volume),
  run: () => ask("POST", `/volumes/${at(volume.name)}/check`, {}),
  done: started,
  button: "Check",
});

export const deleteVolume = (volume) => act({
  title: `Delete ${volume.name}`,
  text: "The volume and all data on it are destroyed. Its shares must be deleted first.",
  confirm: volume.name,
  danger: true,
  command: () => fill("cenote volume delete NAME", volume),
  run: () => ask("DELETE", `/volumes/${at(volume.name)}?confirm=${at(volume.name)}`),
  button: "Delete",
});

// --- Shares and sessions ---

const ACCESS = [["read", "Read"], ["change", "Change"], ["full", "Full control"]];

export const createShare = (volumes, changed) => act({
  title: "Create a share",
  fields: [
    { name: "name", label: "Name", required: true },
    { name: "volume", label: "Volume", kind: "select", choices: namesOf(volumes), value: volumes[0]?.name ?? "" },
    { name: "path", label: "Directory", hint: "Of the volume; empty: all of it." },
    { name: "who", label: "Who may use it", required: true, example: "staff", hint: "A user or a group." },
    { name: "access", label: "May", kind: "select", value: "change", choices: ACCESS },
    { name: "encrypt", label: "Encrypt", kind: "check" },
  ],
  command: (values) => fill("cenote share create NAME --volume VOLUME [--path PATH] --grant GRANT [--encrypt BOOL]", { ...values, grant: `${values.who || "WHO"}:${values.access}` }),
  run: async (values) => {
    const options = { access: [{ who: values.who, access: values.access }], ...(values.encrypt ? { encrypt: true } : {}) };
    await ask("POST", "/shares", { name: values.name, volume: values.volume, path: values.path, options });
    changed();
  },
  button: "Create",
});

const DURABILITIES = [["write", "When it is answered"], ["close", "When the file is closed or flushed"], ["flush", "When the file is flushed"]];

export const changeShare = (share, changed) => act({
  title: `Change ${share.name}`,
  fields: [
    { name: "comment", label: "Comment", value: share.comment },
    { name: "durability", label: "A write is durable", kind: "select", value: share.durability, choices: DURABILITIES },
    { name: "read_only", label: "Read only", kind: "check", value: share.read_only },
    { name: "encrypt", label: "Encrypt", kind: "check", value: share.encrypt },
    { name: "access_based_enumeration", label: "Hide what a user may not read", kind: "check", value: share.access_based_enumeration },
  ],
  command: (values) => fill("cenote share set NAME --comment TEXT [--durability DURABILITY] --read-only BOOL --encrypt BOOL --access-based-enumeration BOOL", {
    ...values,
    name: share.name,
    comment: [values.comment],
    read_only: String(values.read_only),
    encrypt: String(values.encrypt),
    access_based_enumeration: String(values.access_based_enumeration),
  }),
  run: async (values) => {
    await ask("PATCH", `/shares/${at(share.name)}`, values);
    changed();
  },
  button: "Change",
});

// All grants anew: one is added, changed or taken away.
export const changeGrant = (share, changed) => act({
  title: `Grants of ${share.name}`,
  text: share.access.length ? `Now: ${share.access.map((grant) => `${grant.who}: ${grant.access}`).join(", ")}.` : "Nobody may use it now.",
  fields: [
    { name: "who", label: "User or group", required: true, example: "staff" },
    { name: "access", label: "May", kind: "select", value: "change", choices: [...ACCESS, ["none", "Nothing: take the grant away"]] },
  ],
  command: (values) => fill("cenote share set NAME [--grant GRANT]", { name: share.name, grant: grantsWith(share, values).map((grant) => `${grant.who}:${grant.access}`) }),
  run: async (values) => {
    await ask("PATCH", `/shares/${at(share.name)}`, { access: grantsWith(share, values) });
    changed();
  },
  button: "Change",
});

function grantsWith(share, { who, access }) {
  const others = share.access.filter((grant) => grant.who.toLowerCase() !== who.trim().toLowerCase());
  return access === "none" || !who.trim() ? others : [...others, { who: who.trim(), access }];
}

export const deleteShare = (share, changed) => act({
  title: `Delete ${share.name}`,
  text: "Clients lose the share at once. Its files stay on the volume.",
  confirm: share.name,
  danger: true,
  command: () => fill("cenote share delete NAME", share),
  run: async () => {
    await ask("DELETE", `/shares/${at(share.name)}?confirm=${at(share.name)}`);
    changed();
  },
  button: "Delete",
});

export const closeSession = (session) => act({
  title: `End the session of ${session.user || "a guest"}`,
  text: `The client at ${session.client.join(", ")} is logged off, and its open files are closed. It may log on again.`,
  danger: true,
  command: () => fill("cenote session close ID", session),
  run: () => ask("DELETE", `/sessions/${session.id}${session.server ? `?server=${encodeURIComponent(session.server)}` : ""}`),
  button: "End",
});

// --- Jobs ---

export const cancelJob = (job) => act({
  title: `Cancel job ${job.id}`,
  text: "It stops; what it did stays done.",
  command: () => fill("cenote job cancel ID", job),
  run: () => ask("DELETE", `/jobs/${job.id}`),
  button: "Cancel the job",
});

export const resumeJob = (job) => act({
  title: `Resume job ${job.id}`,
  text: "It goes on where it stopped.",
  command: () => fill("cenote job resume ID", job),
  run: () => ask("POST", `/jobs/${job.id}/resume`),
  button: "Resume",
});

// --- Nodes ---

export const addNode = () => act({
  title: "Add a node",
  text: "A token lets one server join, once, within an hour. It is not shown again.",
  command: () => fill("cenote cluster token"),
  run: () => ask("POST", "/cluster/tokens"),
  done: (answer) => html`<p>The token. Keep it in a file that only root can read on the new server, which holds no pool, users or shares:</p>
    <p><${Command} line=${answer.token} /></p>
    <p>Then, on the new server:</p>
    <p><${Command} line=${fill("cenote cluster test --join-token-file FILE")} /></p>
    <p><${Command} line=${fill("cenote cluster join --join-token-file FILE")} /></p>`,
  button: "Make a token",
});

export const drainNode = (node) => act({
  title: `Drain ${node.name}`,
  text: "Its volumes move to other servers, one after the other, while clients go on. Once it is drained it may be stopped.",
  command: () => fill("cenote node drain NAME", node),
  run: () => ask("POST", `/nodes/${at(node.name)}/drain`),
  done: () => "It begins; the server's state on this page tells when it is drained.",
  button: "Drain",
});

export const resumeNode = (node) => act({
  title: `Resume ${node.name}`,
  text: "The server may have volumes again.",
  command: () => fill("cenote node resume NAME", node),
  run: () => ask("POST", `/nodes/${at(node.name)}/resume`),
  button: "Resume",
});

export const removeNode = (node) => act({
  title: `Remove ${node.name}`,
  text: "The server leaves the cluster for good: its certificate is refused at once. Its disks must be retired first.",
  confirm: node.name,
  danger: true,
  command: () => fill("cenote node remove NAME", node),
  run: () => ask("DELETE", `/nodes/${at(node.name)}?confirm=${at(node.name)}`),
  button: "Remove",
});

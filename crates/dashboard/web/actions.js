// What can be done here: a form, the command that does the same, and a name to type if something is destroyed.

import { html, useEffect, useRef, useState } from "./dom.js";
import { Command } from "./parts.js";
import { ask } from "./server.js";
import { parseSize, quoted } from "./words.js";

let open = () => {};

// An action: { title, text, fields, confirm, command(values), run(values), done(answer), button, danger }.
// A field: { name, label, kind: "text" | "select" | "check", choices, value, hint, required }.
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
        : html`<input id=${id} type="text" value=${value} onInput=${set} autocomplete="off" spellcheck="false" required=${field.required} placeholder=${field.example} />`}
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
    try {
      const answer = await action.run(values);
      setState({ answer: action.done?.(answer, values) ?? "Done." });
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
          <p class="buttons"><button type="button" onClick=${close} autofocus>Close</button></p>`
        : html`${(action.fields ?? []).map((field) => html`<${Field} field=${field} value=${values[field.name]} change=${(value) => setValues({ ...values, [field.name]: value })} />`)}
          ${action.confirm && html`<div class="field"><label for="confirm">Type <b>${action.confirm}</b> to go on</label>
            <input id="confirm" type="text" value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck="false" /></div>`}
          <p class="same">The command line does the same:</p>
          <p><${Command} line=${action.command(values)} /></p>
          ${state.error && html`<p class="error" role="alert">${state.error}</p>`}
          <p class="buttons"><button type="button" onClick=${close}>Cancel</button>
            <button type="submit" class=${action.danger ? "danger" : "main"} disabled=${!isConfirmed || state.busy}>${state.busy ? "…" : action.button}</button></p>`}
    </form>`}
  </dialog>`;
};

// A size of a field, or a refusal that says how sizes are written.
function sizeOf(text) {
  const bytes = parseSize(text);
  if (bytes === null) throw new Error(`'${text}' is no size, such as 10GiB.`);
  return bytes;
}

const started = (answer) => html`<p>Job ${answer.job} has begun. <a href="#jobs">Jobs</a> shows how far it is.</p>`;

const pathFields = [
  { name: "path", label: "File or device", required: true, example: "/dev/sdd", hint: "Absolute. It must hold nothing." },
  { name: "create", label: "Make a file of", example: "10GiB", hint: "Only if there is no file yet." },
];
const pathBody = (values) => ({ path: values.path.trim(), ...(values.create.trim() ? { create_size_bytes: sizeOf(values.create) } : {}) });
const pathWords = (values) => `${quoted(values.path.trim() || "PATH")}${values.create.trim() ? ` --create ${quoted(values.create.trim())}` : ""}`;

export const addDisk = (pools) => act({
  title: "Add a disk",
  text: "The disk joins the pool of this server. Data moves to it when the pool is rebalanced, or as it is written.",
  fields: [...pathFields, ...(pools.length > 1 ? [{ name: "pool", label: "Pool", kind: "select", choices: pools.map((pool) => [pool.name, pool.name]), value: pools[0].name }] : [])],
  command: (values) => `cenote disk add ${pathWords(values)}${values.pool ? ` --pool ${quoted(values.pool)}` : ""}`,
  run: (values) => ask("POST", "/disks", { ...pathBody(values), ...(values.pool ? { pool: values.pool } : {}) }),
  done: (answer) => `Disk ${answer.name} is in the pool.`,
  button: "Add",
});

export const retireDisk = (disk) => act({
  title: `Retire ${disk.path}`,
  text: "Everything on it moves to the other disks; then it leaves the pool. All data stays available.",
  command: () => `cenote disk retire ${quoted(disk.path)}`,
  run: () => ask("POST", `/disks/${disk.id}/retire`),
  done: started,
  button: "Retire",
});

export const unretireDisk = (disk) => act({
  title: `Keep ${disk.path}`,
  text: "It may be given data again.",
  command: () => `cenote disk retire ${quoted(disk.path)} --undo`,
  run: () => ask("DELETE", `/disks/${disk.id}/retire`),
  button: "Keep",
});

export const replaceDisk = (disk) => act({
  title: `Replace ${disk.path}`,
  text: "Another disk is added, everything moves to it, and the old one leaves the pool.",
  fields: pathFields,
  command: (values) => `cenote disk replace ${quoted(disk.path)} ${pathWords(values)}`,
  run: (values) => ask("POST", `/disks/${disk.id}/replace`, pathBody(values)),
  done: started,
  button: "Replace",
});

export const locateDisk = (disk) => act({
  title: `Locate ${disk.path}`,
  text: "The light of its slot is switched, if it has one.",
  fields: [{ name: "light", label: "Light", kind: "select", choices: [["on", "On"], ["off", "Off"]], value: "on" }],
  command: (values) => `cenote disk locate ${quoted(disk.path)}${values.light === "off" ? " --off" : ""}`,
  run: (values) => ask("POST", `/disks/${disk.id}/locate`, { on: values.light === "on" }),
  done: (found) => html`<p>${found.led ? "Its light was switched." : found.message}</p>
    <p>${[found.device && `Device ${found.device}`, found.serial && `serial number ${found.serial}`, found.slot && `slot ${found.slot}`].filter(Boolean).join(", ")}</p>`,
  button: "Locate",
});

export const createVolume = (pools) => act({
  title: "Create a volume",
  fields: [
    { name: "name", label: "Name", required: true },
    { name: "size", label: "Size", required: true, example: "100GiB" },
    { name: "resiliency", label: "Resiliency", kind: "select", value: "two_way_mirror", choices: [["two_way_mirror", "Two-way mirror: 2 copies"], ["three_way_mirror", "Three-way mirror: 3 copies"], ["simple", "Simple: one copy, lost with its disk"]] },
    { name: "provisioning", label: "Provisioning", kind: "select", value: "thin", choices: [["thin", "Thin: takes room as it is written"], ["fixed", "Fixed: takes all of its room now"]] },
    ...(pools.length > 1 ? [{ name: "pool", label: "Pool", kind: "select", choices: pools.map((pool) => [pool.name, pool.name]), value: pools[0].name }] : []),
  ],
  command: (values) => `cenote volume create ${quoted(values.name || "NAME")} --size ${quoted(values.size || "SIZE")} --resiliency ${values.resiliency.replaceAll("_", "-")}${values.provisioning === "fixed" ? " --provisioning fixed" : ""}${values.pool ? ` --pool ${quoted(values.pool)}` : ""}`,
  run: (values) => ask("POST", "/volumes", { name: values.name, size_bytes: sizeOf(values.size), resiliency: values.resiliency, provisioning: values.provisioning, ...(values.pool ? { pool: values.pool } : {}) }),
  done: (answer) => `Volume ${answer.name} is there. A share gives clients a way to it.`,
  button: "Create",
});

export const resizeVolume = (volume) => act({
  title: `Resize ${volume.name}`,
  text: "A volume only grows.",
  fields: [{ name: "size", label: "New size", required: true, example: "200GiB" }],
  command: (values) => `cenote volume resize ${quoted(volume.name)} --size ${quoted(values.size || "SIZE")}`,
  run: (values) => ask("PATCH", `/volumes/${encodeURIComponent(volume.name)}`, { size_bytes: sizeOf(values.size) }),
  button: "Resize",
});

export const createShare = (volumes, changed) => act({
  title: "Create a share",
  fields: [
    { name: "name", label: "Name", required: true },
    { name: "volume", label: "Volume", kind: "select", choices: volumes.map((volume) => [volume.name, volume.name]), value: volumes[0]?.name ?? "" },
    { name: "path", label: "Directory", hint: "Of the volume; empty: all of it." },
    { name: "who", label: "Who may use it", required: true, example: "staff", hint: "A user or a group." },
    { name: "access", label: "May", kind: "select", value: "change", choices: [["read", "Read"], ["change", "Change"], ["full", "Full control"]] },
    { name: "encrypt", label: "Encrypt", kind: "check" },
  ],
  command: (values) => `cenote share create ${quoted(values.name || "NAME")} --volume ${quoted(values.volume)}${values.path ? ` --path ${quoted(values.path)}` : ""} --grant ${quoted(`${values.who || "WHO"}:${values.access}`)}${values.encrypt ? " --encrypt" : ""}`,
  run: async (values) => {
    const options = { access: [{ who: values.who, access: values.access }], ...(values.encrypt ? { encrypt: true } : {}) };
    await ask("POST", "/shares", { name: values.name, volume: values.volume, path: values.path, options });
    changed();
  },
  button: "Create",
});

export const changeShare = (share, changed) => act({
  title: `Change ${share.name}`,
  fields: [
    { name: "comment", label: "Comment", value: share.comment },
    { name: "read_only", label: "Read only", kind: "check", value: share.read_only },
    { name: "encrypt", label: "Encrypt", kind: "check", value: share.encrypt },
  ],
  command: (values) => `cenote share set ${quoted(share.name)} --comment ${quoted(values.comment)} --read-only ${values.read_only} --encrypt ${values.encrypt}`,
  run: async (values) => {
    await ask("PATCH", `/shares/${encodeURIComponent(share.name)}`, values);
    changed();
  },
  button: "Change",
});

export const addNode = () => act({
  title: "Add a node",
  text: "A token lets one server join, once, within an hour. It is not shown again.",
  command: () => "cenote cluster token",
  run: () => ask("POST", "/cluster/tokens"),
  done: (answer) => html`<p>On the new server, which holds no pool, users or shares:</p>
    <p><${Command} line=${`cenote cluster test --token ${answer.token}`} /></p>
    <p><${Command} line=${`cenote cluster join --token ${answer.token}`} /></p>`,
  button: "Make a token",
});

export const removeNode = (node) => act({
  title: `Remove ${node.name}`,
  text: "The server leaves the cluster for good: its certificate is refused at once. Its disks must be retired first.",
  confirm: node.name,
  danger: true,
  command: () => `cenote node remove ${quoted(node.name)}`,
  run: () => ask("DELETE", `/nodes/${encodeURIComponent(node.name)}?confirm=${encodeURIComponent(node.name)}`),
  button: "Remove",
});

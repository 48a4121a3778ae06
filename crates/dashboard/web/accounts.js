// Users, groups, quotas, and who may do what with a directory.

import { html, useState } from "./dom.js";
import { act, sizeOf } from "./actions.js";
import { Card, Choice, Failed, Filter, Menu, State, Table, matching, useAsked } from "./parts.js";
import { ask } from "./server.js";
import { clock, fill, size } from "./words.js";

const ASKED_EVERY_MS = 15000;
const at = encodeURIComponent;
const listed = (text) => text.split(/[\s,]+/).filter(Boolean);

// --- Users ---

const addUser = (groups, changed) => act({
  title: "Add a user",
  fields: [
    { name: "name", label: "Name", required: true, hint: "To log on with." },
    { name: "full_name", label: "Full name" },
    { name: "password", label: "Password", kind: "password", required: true },
    { name: "group", label: "Groups", example: groups[0]?.name, hint: "With commas between; may be empty." },
  ],
  command: (values) => fill("cenote user add NAME --password-stdin [--full-name TEXT] [--group GROUP]", { ...values, group: listed(values.group) }),
  run: async (values) => {
    await ask("POST", "/users", { name: values.name, password: values.password, full_name: values.full_name, groups: listed(values.group) });
    changed();
  },
  done: (_, values) => `User ${values.name} may log on. A share's grants say where to.`,
  button: "Add",
});

const setPassword = (user, changed) => act({
  title: `Password of ${user.name}`,
  text: "The old one is no longer taken.",
  fields: [{ name: "password", label: "New password", kind: "password", required: true }],
  command: () => fill("cenote user set NAME --password-stdin", user),
  run: async (values) => {
    await ask("PATCH", `/users/${at(user.name)}`, { password: values.password });
    changed();
  },
  button: "Set",
});

const setEnabled = (user, is_enabled, changed) => act({
  title: `${is_enabled ? "Enable" : "Disable"} ${user.name}`,
  text: is_enabled ? "The user may log on again." : "The user cannot log on until it is enabled. Files, grants and groups stay.",
  command: () => fill("cenote user set NAME --enabled BOOL", { name: user.name, enabled: String(is_enabled) }),
  run: async () => {
    await ask("PATCH", `/users/${at(user.name)}`, { enabled: is_enabled });
    changed();
  },
  button: is_enabled ? "Enable" : "Disable",
});

const renameUser = (user, changed) => act({
  title: `Rename ${user.name}`,
  text: "Password, groups, grants and files stay; its sessions end.",
  fields: [{ name: "new_name", label: "New name", required: true }],
  command: (values) => fill("cenote user rename NAME NEW_NAME", { name: user.name, ...values }),
  run: async (values) => {
    await ask("PATCH", `/users/${at(user.name)}`, { name: values.new_name });
    changed();
  },
  button: "Rename",
});

const deleteUser = (user, changed) => act({
  title: `Delete ${user.name}`,
  text: "Its SID is never given again: files that it owns stay, without a name for their owner.",
  confirm: user.name,
  danger: true,
  command: () => fill("cenote user delete NAME", user),
  run: async () => {
    await ask("DELETE", `/users/${at(user.name)}?confirm=${at(user.name)}`);
    changed();
  },
  button: "Delete",
});

const Users = ({ users, groups, changed }) => {
  const [typed, setTyped] = useState("");
  const shown = matching(users, typed, (user) => [user.name, user.full_name, ...user.groups].join(" "));
  const columns = [
    { name: "User", sort: (user) => user.name, of: (user) => html`<b>${user.name}</b>` },
    { name: "Full name", sort: (user) => user.full_name, of: (user) => user.full_name || "–" },
    { name: "State", sort: (user) => String(user.enabled), of: (user) => (user.password_lost ? html`<${State} of="warning" word="Needs a new password" />` : html`<${State} of=${user.enabled ? "ok" : "none"} word=${user.enabled ? "Enabled" : "Disabled"} />`) },
    { name: "Groups", of: (user) => user.groups.join(", ") || "–" },
    { name: "Password set", sort: (user) => user.password_set_unix_s, of: (user) => (user.password_set_unix_s ? clock(user.password_set_unix_s) : "–") },
    { name: "", of: (user) => html`<${Menu} label=${user.name} items=${[
      ["Set the password …", () => setPassword(user, changed)],
      ["Rename …", () => renameUser(user, changed)],
      user.enabled ? ["Disable …", () => setEnabled(user, false, changed)] : ["Enable …", () => setEnabled(user, true, changed)],
      ["Delete …", () => deleteUser(user, changed), true],
    ]} />` },
  ];
  return html`<${Card} title=${`Users (${users.length})`} extra=${html`<button type="button" onClick=${() => addUser(groups.filter((group) => !group.builtin), changed)}>Add a user</button>`}>
    ${users.length > 8 && html`<div class="tools"><${Filter} label="Filter by name or group" value=${typed} change=${setTyped} /></div>`}
    <${Table} dense label="Users" columns=${columns} rows=${shown} keyOf=${(user) => user.sid} empty=${typed ? "No user has all of these words." : "There is no user."} />
  </${Card}>`;
};

// --- Groups ---

const addGroup = (changed) => act({
  title: "Add a group",
  fields: [{ name: "name", label: "Name", required: true }],
  command: (values) => fill("cenote group add NAME", values),
  run: async (values) => {
    await ask("POST", "/groups", { name: values.name });
    changed();
  },
  button: "Add",
});

const changeMembers = (group, changed) => act({
  title: `Members of ${group.name}`,
  text: group.members.length ? `Now: ${group.members.join(", ")}.` : "It has none.",
  fields: [
    { name: "add", label: "Add", hint: "Users or groups, with commas between." },
    { name: "remove", label: "Remove" },
  ],
  command: (values) => fill("cenote group set NAME [--add MEMBER] [--remove MEMBER]", { name: group.name, add: listed(values.add), remove: listed(values.remove) }),
  run: async (values) => {
    await ask("PATCH", `/groups/${at(group.name)}`, { add: listed(values.add), remove: listed(values.remove) });
    changed();
  },
  button: "Change",
});

const deleteGroup = (group, changed) => act({
  title: `Delete ${group.name}`,
  text: "Its members stay; what it was granted nobody has by it any more.",
  confirm: group.name,
  danger: true,
  command: () => fill("cenote group delete NAME", group),
  run: async () => {
    await ask("DELETE", `/groups/${at(group.name)}?confirm=${at(group.name)}`);
    changed();
  },
  button: "Delete",
});

const Groups = ({ groups, changed }) => html`<${Card} title=${`Groups (${groups.length})`} extra=${html`<button type="button" onClick=${() => addGroup(changed)}>Add a group</button>`}>
  <${Table} dense label="Groups" rows=${groups} keyOf=${(group) => group.sid} empty="There is no group." columns=${[
    { name: "Group", sort: (group) => group.name, of: (group) => html`<b>${group.name}</b>${group.builtin ? html` <span class="quiet">Windows' own</span>` : ""}` },
    { name: "Members", of: (group) => group.members.join(", ") || "–" },
    { name: "", of: (group) => html`<${Menu} label=${group.name} items=${[["Members …", () => changeMembers(group, changed)], !group.builtin && ["Delete …", () => deleteGroup(group, changed), true]]} />` },
  ]} />
</${Card}>`;

// --- Quotas ---

const bound = (text) => (text.trim() === "" || text.trim() === "none" ? null : sizeOf(text));
const boundWords = (text) => text.trim() || "none";
const typedBound = (bytes) => (bytes === null ? "" : `${bytes}`);
const boundFields = (limit, threshold) => [
  { name: "limit", label: "Limit", example: "10GiB", value: typedBound(limit), hint: "Writes beyond it are refused; empty: no limit." },
  { name: "warning", label: "Warning", example: "8GiB", value: typedBound(threshold), hint: "Beyond it the user is shown as over the warning; empty: none." },
];

const setQuota = (volume, quota, changed) => act({
  title: `Quota of ${quota ? quota.user : "a user"} on ${volume}`,
  fields: [...(quota ? [] : [{ name: "user", label: "User", required: true }]), ...boundFields(quota?.limit_bytes ?? null, quota?.threshold_bytes ?? null)],
  command: (values) => fill("cenote quota set VOLUME USER --limit SIZE --warning SIZE", { volume, user: quota?.user ?? values.user, limit: boundWords(values.limit), warning: boundWords(values.warning) }),
  run: async (values) => {
    await ask("PUT", `/volumes/${at(volume)}/quotas/${at(quota?.user ?? values.user)}`, { limit_bytes: bound(values.limit), threshold_bytes: bound(values.warning) });
    changed();
  },
  button: "Set",
});

const removeQuota = (volume, quota, changed) => act({
  title: `Remove the bounds of ${quota.user} on ${volume}`,
  text: "The volume's defaults hold for the user then.",
  command: () => fill("cenote quota remove VOLUME USER", { volume, user: quota.user }),
  run: async () => {
    await ask("DELETE", `/volumes/${at(volume)}/quotas/${at(quota.user)}`);
    changed();
  },
  button: "Remove",
});

const MODES = [["off", "Off: keep no counts"], ["track", "Track: count, refuse nothing"], ["enforce", "Enforce: refuse writes beyond a limit"]];

const setQuotas = (volume, report, changed) => act({
  title: `Quotas of ${volume}`,
  text: "The defaults hold for all users without bounds of their own.",
  fields: [{ name: "mode", label: "Mode", kind: "select", value: report.mode, choices: MODES }, ...boundFields(report.default_limit_bytes, report.default_threshold_bytes)],
  command: (values) => fill("cenote quota set VOLUME --mode MODE --limit SIZE --warning SIZE", { volume, mode: values.mode, limit: boundWords(values.limit), warning: boundWords(values.warning) }),
  run: async (values) => {
    await ask("PATCH", `/volumes/${at(volume)}/quotas`, { mode: values.mode, defaults: { limit_bytes: bound(values.limit), threshold_bytes: bound(values.warning) } });
    changed();
  },
  button: "Change",
});

const none = (bytes) => (bytes === null ? "none" : size(bytes));

const Quotas = ({ volumes }) => {
  const [chosen, setChosen] = useState("");
  const volume = volumes.some((one) => one.name === chosen) ? chosen : volumes[0]?.name;
  const [report, error, load] = useAsked(volume ? `/volumes/${at(volume)}/quotas` : "", ASKED_EVERY_MS);
  if (!volume) return "";
  const isOn = report && report.mode !== "off";
  return html`<${Card} title="Quotas" extra=${report && html`<span class="buttons">
      <button type="button" onClick=${() => setQuotas(volume, report, load)}>Settings</button>
      ${isOn && html`<button type="button" onClick=${() => setQuota(volume, null, load)}>Set a user's</button>`}</span>`}>
    ${volumes.length > 1 && html`<div class="tools"><span class="quiet">Volume</span><${Choice} label="Volume" value=${volume} change=${setChosen} choices=${volumes.map((one) => [one.name, one.name])} /></div>`}
    <${Failed} why=${error} />
    ${report && html`<p>On ${volume}: ${report.mode}${isOn ? `; by default limit ${none(report.default_limit_bytes)}, warning ${none(report.default_threshold_bytes)}` : ""}${report.counting ? "; files are still being counted, so that no limit holds yet" : ""}.</p>`}
    ${isOn && html`<${Table} dense label="Quotas" rows=${report.users} keyOf=${(quota) => quota.sid} empty="Nobody has files yet." columns=${[
      { name: "User", sort: (quota) => quota.user, of: (quota) => html`<b>${quota.user}</b>` },
      { name: "Used", right: true, sort: (quota) => quota.used_bytes, of: (quota) => size(quota.used_bytes) },
      { name: "Limit", right: true, sort: (quota) => quota.limit_bytes, of: (quota) => none(quota.limit_bytes) },
      { name: "Warning", right: true, sort: (quota) => quota.threshold_bytes, of: (quota) => none(quota.threshold_bytes) },
      { name: "State", of: (quota) => html`<${State} of=${quota.over_limit ? "unhealthy" : quota.over_threshold ? "warning" : "ok"} word=${quota.over_limit ? "Over the limit" : quota.over_threshold ? "Over the warning" : "Below"} />` },
      { name: "Bounds", of: (quota) => (quota.own_limits ? "own" : "default") },
      { name: "", of: (quota) => html`<${Menu} label=${`quota of ${quota.user}`} items=${[["Set …", () => setQuota(volume, quota, load)], quota.own_limits && ["Remove …", () => removeQuota(volume, quota, load)]]} />` },
    ]} />`}
    ${report?.truncated && html`<p class="quiet">There are more users than are listed.</p>`}
  </${Card}>`;
};

// --- Entries of a directory ---

const RIGHTS = [["read", "Read"], ["read_execute", "Read and execute"], ["write", "Write"], ["modify", "Modify"], ["full", "Full control"]];
const place = (where) => ({ share: where.share, path: where.path });
const url = (where) => `/shares/${at(where.share)}/acl?path=${at(where.path)}`;
const followed = (answer) => html`<p>Done.${answer?.job ? html` What is below follows in job ${answer.job}: <a href="#jobs">Jobs</a>.` : ""}${answer?.still_inherited?.length ? ` Entries that come from above stay: ${answer.still_inherited.join(", ")}.` : ""}</p>`;

const changing = (action, changed) => act({ ...action, done: followed, run: async (values) => {
  const answer = await action.run(values);
  changed();
  return answer;
} });

const addEntry = (where, changed) => changing({
  title: "Allow or deny",
  fields: [
    { name: "who", label: "User or group", required: true },
    { name: "kind", label: "Kind", kind: "select", value: "allow", choices: [["allow", "Allow"], ["deny", "Deny"]] },
    { name: "access", label: "Access", kind: "select", value: "modify", choices: RIGHTS },
  ],
  command: (values) => fill("cenote acl set SHARE [PATH] [--grant GRANT] [--deny DENY]", { ...place(where), [values.kind === "deny" ? "deny" : "grant"]: `${values.who || "WHO"}:${values.access}` }),
  run: (values) => ask("PATCH", url(where), { grant: [{ who: values.who, allow: values.kind === "allow", access: values.access, object_inherit: true, container_inherit: true }] }),
  button: "Set",
}, changed);

const revoke = (where, entry, changed) => changing({
  title: `Revoke the entries of ${entry.who}`,
  text: "Those that come from above stay.",
  command: () => fill("cenote acl set SHARE [PATH] --revoke WHO", { ...place(where), revoke: entry.who }),
  run: () => ask("PATCH", url(where), { revoke: [entry.who] }),
  button: "Revoke",
}, changed);

const setOwner = (where, changed) => changing({
  title: "Change the owner",
  fields: [{ name: "owner", label: "User or group", required: true }],
  command: (values) => fill("cenote acl set SHARE [PATH] --owner WHO", { ...place(where), ...values }),
  run: (values) => ask("PATCH", url(where), { owner: values.owner }),
  button: "Change",
}, changed);

const protect = (where, is_protected, changed) => changing({
  title: is_protected ? "Inherit from above again" : "Break inheritance",
  text: is_protected ? "Entries from above are added; its own stay." : "Entries no longer come from above. Those that it has are kept as its own.",
  command: () => (is_protected ? fill("cenote acl inherit SHARE [PATH]", place(where)) : fill("cenote acl protect SHARE [PATH]", place(where))),
  run: () => ask("PATCH", url(where), { inheritance: is_protected ? "restore" : "break_and_keep" }),
  button: is_protected ? "Inherit" : "Break",
}, changed);

const appliesTo = (entry) => (entry.inherit_only ? "below only" : entry.container_inherit || entry.object_inherit ? "here and below" : "here");

const Entries = ({ shares }) => {
  const [where, setWhere] = useState(null);
  const [typed, setTyped] = useState("");
  const [name, setName] = useState("");
  const share = name || shares[0]?.name;
  const [acl, error, load] = useAsked(where ? url(where) : "", 0);
  if (!share) return "";
  const show = (event) => {
    event.preventDefault();
    const next = { share, path: typed.trim() };
    if (where && url(where) === url(next)) load();
    setWhere(next);
  };
  return html`<${Card} title="Access to a directory">
    <form class="tools" onSubmit=${show}>
      <label for="acl-share" class="quiet">Share</label><select id="acl-share" onChange=${(event) => setName(event.target.value)}>${shares.map((one) => html`<option value=${one.name} selected=${one.name === share}>${one.name}</option>`)}</select>
      <label for="acl-path" class="quiet">Path</label><input id="acl-path" type="text" value=${typed} placeholder="its root, or projects/2026" onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck="false" />
      <button type="submit">Show</button>
    </form>
    <${Failed} why=${error} />
    ${where && acl && html`
      <div class="tools"><span>${where.share}${where.path ? `/${where.path}` : ""}: owner <b>${acl.owner}</b>, ${acl.protected ? "inherits nothing from above" : "inherits from above"}</span>
        <button type="button" class="small" onClick=${() => addEntry(where, load)}>Allow or deny</button>
        <button type="button" class="small" onClick=${() => setOwner(where, load)}>Owner</button>
        <button type="button" class="small" onClick=${() => protect(where, acl.protected, load)}>${acl.protected ? "Inherit" : "Break inheritance"}</button></div>
      ${acl.entries === null
        ? html`<p><${State} of="warning" word="It has no entries at all: everybody may do everything." /></p>`
        : html`<${Table} dense label="Access entries" rows=${acl.entries.map((entry, number) => ({ ...entry, number }))} keyOf=${(entry) => entry.number} empty="Nobody but the owner may do anything." columns=${[
          { name: "Who", of: (entry) => html`<b>${entry.who}</b>` },
          { name: "Kind", of: (entry) => (entry.allow ? "Allow" : html`<${State} of="warning" word="Deny" />`) },
          { name: "Access", of: (entry) => entry.access.replaceAll("_", " ") },
          { name: "Holds", of: appliesTo },
          { name: "From", of: (entry) => (entry.inherited ? "above" : "itself") },
          { name: "", of: (entry) => (entry.inherited ? "" : html`<${Menu} label=${`entry of ${entry.who}`} items=${[["Revoke …", () => revoke(where, entry, load), true]]} />`) },
        ]} />`}`}
  </${Card}>`;
};

export const Accounts = ({ live }) => {
  const [users, usersError, loadUsers] = useAsked("/users", ASKED_EVERY_MS);
  const [groups, groupsError, loadGroups] = useAsked("/groups", ASKED_EVERY_MS);
  const [shares, sharesError] = useAsked("/shares", ASKED_EVERY_MS);
  const changed = () => { loadUsers(); loadGroups(); };
  return html`
    <h1>Users and access</h1>
    <${Failed} why=${usersError || groupsError || sharesError} />
    ${users && html`<${Users} users=${users} groups=${groups ?? []} changed=${changed} />`}
    ${groups && html`<${Groups} groups=${groups} changed=${changed} />`}
    <${Entries} shares=${shares ?? []} />
    <${Quotas} volumes=${live.volumes} />`;
};

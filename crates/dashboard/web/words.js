// How figures and states are written.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) return `${Math.round(value)} B`;
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0)} ${UNITS[unit]}`;
}

export const rate = (bytes) => `${size(bytes)}/s`;

export function count(value) {
  if (value === null || value === undefined) return "–";
  return value < 10 && value > 0 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value).toLocaleString("en-US");
}

export function micros(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${us.toFixed(0)} µs`;
  if (us < 100000) return `${(us / 1000).toFixed(1)} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 60) return `${Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

export const percent = (part, whole) => (whole > 0 ? `${((part / whole) * 100).toFixed(0)} %` : "–");

// A figure with a bar beside it, and the day of a moment.
export const share = (part, whole) => `${size(part)} of ${size(whole)}`;
export const day = (unix) => new Date(unix * 1000).toLocaleDateString("sv-SE");

export const clock = (unix) => new Date(unix * 1000).toLocaleString("sv-SE");

// `lost_communication` as people write it.
export const spoken = (word) => {
  const text = String(word ?? "").replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
};

// Bytes of `10GiB`; null if it is no size.
export function parseSize(text) {
  const found = String(text).trim().match(/^(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|PiB)?$/i);
  if (!found) return null;
  const unit = UNITS.findIndex((unit) => unit.toLowerCase() === (found[2] ?? "B").toLowerCase());
  return Math.round(Number(found[1]) * 1024 ** unit);
}

// A word of a shell: quoted if it has to be.
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

// The command of a usage: capitals stand for a value, [brackets] for a part that is left out without one; an option's value has the name of the
// option. Without a value the capitals stay; of a list each value is given.
export function fill(usage, values = {}) {
  const words = (name) => {
    const given = values[name.replace(/^--/, "").replaceAll("-", "_").toLowerCase()];
    const all = Array.isArray(given) ? given : [given].filter((value) => value !== undefined && value !== null && value !== "" && value !== false);
    return all.map((value) => quoted(String(value)));
  };
  return usage.replace(/ \[(--[a-z-]+)( [A-Z_]+)?\]| \[([A-Z_]+)\]|(--[a-z-]+) [A-Z_]+\b|\b[A-Z][A-Z_]+\b/g, (whole, option, value, place, needed) => {
    if (option) return words(option).map((word) => ` ${option}${value ? ` ${word}` : ""}`).join("");
    if (place) return words(place).map((word) => ` ${word}`).join("");
    const found = words(needed ?? whole);
    if (found.length === 0) return whole;
    return found.map((word) => (needed ? `${needed} ${word}` : word)).join(" ");
  });
}

// The last part of a path.
export const baseName = (path) => path.split("/").pop() || path;

// A state as one of four: its colour, and its sign, which says the same without colour.
export const TONES = { good: "✓", warn: "!", bad: "✕", none: "–" };

export function tone(word) {
  switch (word) {
    case "healthy": case "ok": case "up": case "yes": case "completed": return "good";
    case "warning": case "partly": case "retiring": case "in_service": case "degraded": case "no_redundancy":
    case "draining": case "drained": case "running": case "suspended": return "warn";
    case "unhealthy": case "no": case "down": case "lost_communication": case "io_error": case "unrecognized_metadata":
    case "detached": case "read_only": case "failed": return "bad";
    default: return "none";
  }
}

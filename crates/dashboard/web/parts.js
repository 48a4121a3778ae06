// Pieces that pages are made of.

import { html, useEffect, useRef, useState } from "./dom.js";
import { ask } from "./server.js";
import { TONES, count, rate, spoken, tone } from "./words.js";

// What the API answers, asked again every so many milliseconds: [answer, why there is none, ask again]. No path: nothing is asked.
export function useAsked(path, every_ms) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const load = () => (path ? ask("GET", path).then((answer) => { setFound(answer); setError(""); }, (refused) => setError(refused.message)) : undefined);
  useEffect(() => {
    setFound(null);
    load();
    if (!path || !every_ms) return undefined;
    const timer = setInterval(load, every_ms);
    return () => clearInterval(timer);
  }, [path]);
  return [found, error, load];
}

export const Failed = ({ why }) => (why ? html`<p class="error" role="alert">${why}</p>` : "");

// A state: a sign and a word, and a colour beside them.
export const State = ({ of, word }) => {
  const kind = tone(of);
  return html`<span class="state ${kind}"><span class="sign" aria-hidden="true">${TONES[kind]}</span>${word ?? spoken(of)}</span>`;
};

export const Card = ({ title, children, extra, id }) => html`
  <section class="card" id=${id}>
    ${(title || extra) && html`<header><h2>${title}</h2>${extra}</header>`}
    ${children}
  </section>`;

// Part of a whole. `marks`: parts of it at which something begins; `warnAt`: the share from which it is too much. Progress is never too much.
export const Bar = ({ part, whole, marks = [], label, warnAt = Infinity }) => {
  const share = whole > 0 ? Math.min(part / whole, 1) : 0;
  return html`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="whole" width="100" height="8" />
    <rect class=${share >= warnAt ? "part full" : "part"} width=${share * 100} height="8" />
    ${marks.map((mark) => html`<rect class="mark" x=${Math.max(0, Math.min(99, (mark / whole) * 100))} width="1" height="8" />`)}
  </svg>`;
};

// A command to copy.
export const Command = ({ line }) => {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(line).catch(() => {});
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<span class="command"><code>${line}</code><button type="button" class="small" onClick=${copy} aria-label=${`Copy: ${line}`}>${copied ? "Copied" : "Copy"}</button></span>`;
};

// Text with `commands` in it. A full stop behind the last one would stand on a line of its own.
export const Prose = ({ text }) => html`${String(text ?? "").replace(/`\s*\.\s*$/, "`").split("`").map((part, at) => (at % 2 ? html`<${Command} line=${part} />` : part))}`;

// What can be done with a row, behind one button. Items: [label, function, is it dangerous].
export const Menu = ({ label, items }) => {
  const list = useRef(null);
  const shown = items.filter(Boolean);
  if (shown.length === 0) return "";
  const open = (event) => {
    const at = event.currentTarget.getBoundingClientRect();
    const menu = list.current;
    menu.showPopover();
    menu.style.left = `${Math.max(4, Math.min(at.right - menu.offsetWidth, innerWidth - menu.offsetWidth - 4))}px`;
    menu.style.top = `${at.bottom + menu.offsetHeight > innerHeight ? Math.max(4, at.top - menu.offsetHeight) : at.bottom}px`;
  };
  return html`<button type="button" class="small menu-button" aria-haspopup="menu" aria-label=${`Actions for ${label}`} onClick=${open}>⋯</button>
    <div popover="auto" class="menu" role="menu" ref=${list}>${shown.map(([name, run, danger]) => html`<button type="button" role="menuitem" class=${danger ? "dangerous" : ""} onClick=${() => { list.current.hidePopover(); run(); }}>${name}</button>`)}</div>`;
};

const ordered = (one, other) => {
  const [empty, otherEmpty] = [one === null || one === undefined, other === null || other === undefined];
  // What is not known comes last, whichever way a column is sorted.
  if (empty || otherEmpty) return empty - otherEmpty;
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
};

function sorted(rows, by, isDown) {
  if (!by) return rows;
  const known = (row) => by(row) !== null && by(row) !== undefined;
  return [...rows].sort((one, other) => (isDown && known(one) && known(other) ? -1 : 1) * ordered(by(one), by(other)));
}

// A table that becomes a list of cards on a narrow screen. Columns: { name, of(row), right, sort(row) }. `group`: the heading that a row stands under.
export const Table = ({ columns, rows, keyOf, empty, label, rowClass, dense, group }) => {
  const [order, setOrder] = useState([null, false]);
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  const [by, isDown] = order;
  const turn = (name) => setOrder(by !== name ? [name, false] : isDown ? [null, false] : [name, true]);
  const inOrder = sorted(rows, columns.find((column) => column.name === by)?.sort, isDown);
  const groups = group ? [...Map.groupBy(inOrder, group)].sort(([one], [other]) => ordered(one, other)) : [[null, inOrder]];
  const head = (column) => (column.sort
    ? html`<button type="button" class="sort" onClick=${() => turn(column.name)}>${column.name}${by === column.name ? (isDown ? " ▾" : " ▴") : ""}</button>`
    : column.name);
  return html`<div class="scroll"><table aria-label=${label} class=${dense ? "dense" : ""}>
    <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.right ? "right" : ""} title=${column.about} aria-sort=${by === column.name ? (isDown ? "descending" : "ascending") : undefined}>${head(column)}</th>`)}</tr></thead>
    ${groups.map(([name, own]) => html`<tbody key=${name}>
      ${name !== null && html`<tr class="group"><th colspan=${columns.length} scope="rowgroup">${name || "No server"} <span class="quiet">${own.length}</span></th></tr>`}
      ${own.map((row) => html`<tr key=${keyOf(row)} data-row=${keyOf(row)} class=${rowClass?.(row) ?? ""}>
      ${columns.map((column) => {
        const shown = column.of(row);
        return html`<td class=${`${column.right ? "right" : ""}${shown === "–" ? " unknown" : ""}`} data-label=${column.name}><span>${shown}</span></td>`;
      })}
    </tr>`)}</tbody>`)}
  </table></div>`;
};

// Rows of which a text has all words that are typed.
export const Filter = ({ value, change, label }) => html`<input type="search" class="filter" aria-label=${label} placeholder=${label} value=${value} onInput=${(event) => change(event.target.value)} />`;
export const matching = (rows, typed, textOf) => {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length === 0 ? rows : rows.filter((row) => { const text = textOf(row).toLowerCase(); return words.every((word) => text.includes(word)); });
};

export const Choice = ({ label, choices, value, change }) => html`<div class="choice" role="group" aria-label=${label}>${choices.map(([word, text]) => html`<button type="button" class="small" aria-pressed=${value === word} onClick=${() => change(word)}>${text}</button>`)}</div>`;

export const Facts = ({ facts }) => html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value ?? "–"}</dd></div>`)}</dl>`;

// Colours that are told apart by everybody (Okabe and Ito), with dashes beside them.
export const LINES = [
  { light: "#0072b2", dark: "#56b4e9", dash: [] },
  { light: "#d55e00", dark: "#e69f00", dash: [] },
  { light: "#009e73", dark: "#2fcfa0", dash: [6, 3] },
  { light: "#aa4499", dark: "#cc79a7", dash: [2, 3] },
];

export const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// Steps between marks of an axis: whole seconds, minutes, hours and days; bytes by powers of two.
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000];
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

// A time on an axis of so many seconds.
const moment = (at, span) => {
  const text = new Date(at * 1000).toLocaleString("sv-SE");
  return span > 2 * 86400 ? text.slice(5, 10) : span > 600 ? text.slice(11, 16) : text.slice(11);
};

// A gap of time is shown as one: a point without values stands in it. `step_s`: the time between two points.
export function withGaps(times, columns, step_s) {
  const found = [[], ...columns.map(() => [])];
  times.forEach((at, place) => {
    const before = times[place - 1];
    if (before !== undefined && at - before > 2.5 * step_s) {
      found[0].push(before + step_s);
      found.slice(1).forEach((list) => list.push(null));
    }
    found[0].push(at);
    columns.forEach((column, series) => found[series + 1].push(column[place] ?? null));
  });
  return found;
}

// The legend has the newest values while nobody points at others.
function tellNewest(plot) {
  const count = plot?.data[0].length;
  if (count && !(plot.cursor.left >= 0)) plot.setLegend({ idx: count - 1 });
}

// Lines over time. `data`: [times, values, ...]; `series`: names; `write`: how a value is written; `span_s`: the time up to now that is shown, of
// which a part may be chosen by dragging, until a double click.
export const Chart = ({ title, data, series, write, height = 190, span_s }) => {
  const chosen = useRef(null);
  const shownSpan = useRef(span_s);
  shownSpan.current = span_s;
  const place = useRef(null);
  const plot = useRef(null);
  const dark = isDark();
  const key = `${series.join()}|${dark}`;
  useEffect(() => {
    const element = place.current;
    const width = () => Math.max(element.clientWidth, 200);
    const ink = dark ? "#c9d4da" : "#33434c";
    const grid = { stroke: dark ? "#2b3a42" : "#e3e9ec", width: 1 };
    const options = {
      width: width(),
      height,
      cursor: { y: false, drag: { x: true, y: false, setScale: false } },
      hooks: {
        setSelect: [(drawn) => {
          const { left, width: wide } = drawn.select;
          if (wide < 3) return;
          chosen.current = [drawn.posToVal(left, "x"), drawn.posToVal(left + wide, "x")];
          drawn.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          drawn.setData(drawn.data);
        }],
      },
      legend: { live: true },
      scales: { x: { range: (_, low, high) => chosen.current ?? (shownSpan.current ? [Date.now() / 1000 - shownSpan.current, Date.now() / 1000] : [low, high]) }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      padding: [null, 28, null, null],
      axes: [
        { stroke: ink, grid, ticks: grid, space: 72, incrs: TIME_STEPS, values: (_, times) => times.map((at) => moment(at, times.at(-1) - times[0])) },
        // A scale of small numbers would write some twice.
        { stroke: ink, grid, ticks: grid, size: 80, ...(write === rate ? { incrs: BYTE_STEPS } : {}), values: (_, values) => values.map(write).map((word, at, all) => (word === all[at - 1] ? "" : word)) },
      ],
      series: [
        { value: (_, at) => (at == null ? "–" : new Date(at * 1000).toLocaleString("sv-SE")) },
        ...series.map((label, at) => ({
          label,
          stroke: LINES[at % LINES.length][dark ? "dark" : "light"],
          dash: LINES[at % LINES.length].dash,
          width: 1.5,
          spanGaps: false,
          points: { show: false },
          value: (_, value) => (value == null ? "–" : write(value)),
        })),
      ],
    };
    plot.current = new uPlot(options, data, element);
    element.ondblclick = () => { chosen.current = null; plot.current?.setData(plot.current.data); };
    const observer = new ResizeObserver(() => { plot.current?.setSize({ width: width(), height }); tellNewest(plot.current); });
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [key, height]);
  useEffect(() => { chosen.current = null; }, [span_s]);
  useEffect(() => {
    plot.current?.setData(data);
    tellNewest(plot.current);
  }, [data, key, height]);
  const last = series.map((name, at) => `${name} ${data[at + 1]?.at(-1) == null ? "–" : write(data[at + 1].at(-1))}`).join(", ");
  return html`<figure class="chart"><figcaption>${title}</figcaption><div ref=${place} role="img" data-from=${data[0].length ? Math.round(data[0][0]) : undefined} aria-label=${`${title}: ${last}`}></div></figure>`;
};

export const Number = ({ value, unit }) => html`<span class="number">${count(value)}${unit ? ` ${unit}` : ""}</span>`;

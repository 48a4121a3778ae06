// Pieces that pages are made of.

import { html, useEffect, useRef, useState } from "./dom.js";
import { TONES, count, rate, spoken, tone } from "./words.js";

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

// Part of a whole. `marks`: parts of it at which something begins, by their words.
export const Bar = ({ part, whole, marks = [], label }) => {
  const share = whole > 0 ? Math.min(part / whole, 1) : 0;
  return html`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="whole" width="100" height="8" />
    <rect class=${share > 0.9 ? "part full" : "part"} width=${share * 100} height="8" />
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

// Text with `commands` in it.
export const Prose = ({ text }) => html`${String(text ?? "").split("`").map((part, at) => (at % 2 ? html`<${Command} line=${part} />` : part))}`;

// A table that becomes a list of cards on a narrow screen. Columns: { name, of(row), right }.
export const Table = ({ columns, rows, keyOf, empty, label, rowClass }) => {
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll"><table aria-label=${label}>
    <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.right ? "right" : ""} title=${column.about}>${column.name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)} data-row=${keyOf(row)} class=${rowClass?.(row) ?? ""}>
      ${columns.map((column) => html`<td class=${column.right ? "right" : ""} data-label=${column.name}><span>${column.of(row)}</span></td>`)}
    </tr>`)}</tbody>
  </table></div>`;
};

export const Facts = ({ facts }) => html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

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

// Lines over time. `data`: [times, values, ...]; `series`: names; `write`: how a value is written.
export const Chart = ({ title, data, series, write, height = 190 }) => {
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
      cursor: { y: false },
      legend: { live: true },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
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
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: width(), height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [key, height]);
  useEffect(() => plot.current?.setData(data), [data]);
  const last = series.map((name, at) => `${name} ${write(data[at + 1]?.at(-1) ?? 0)}`).join(", ");
  return html`<figure class="chart"><figcaption>${title}</figcaption><div ref=${place} role="img" aria-label=${`${title}: ${last}`}></div></figure>`;
};

export const Number = ({ value, unit }) => html`<span class="number">${count(value)}${unit ? ` ${unit}` : ""}</span>`;

// What the pages of the lab share: the figures with their words, the policies' inks, the table that sorts,
// the frame of a page, and what dollars are taken from. Owns how a figure of the lab is written. Never draws
// a chart, and never reckons a figure: the lab did.
import { html, render, useState } from "./lib.js";
import { cut, full, known, pct, short, usd } from "./format.js";
import { Glyph } from "./parts.js";

/** @typedef {import("./lib.js").Shown} Shown */
/** @typedef {import("./format.js").Maybe} Maybe */
/** @typedef {{ name: string, sessions: number, usd_per_million: number | null }} Model */
/** A figure: its name in the JSON, its head, how it is written, whether more is better (0: neither), and what it means. @typedef {{ key: string, head: string, write: (v: Maybe) => string, better: -1 | 0 | 1, words: string }} Figure */
/** @typedef {{ v: string | number | null | undefined, text: Shown, c?: string }} Cell */
/** @typedef {{ key: string, cells: Cell[], c?: string }} Row */

/** A share with four digits, as the terminal has it. @param {Maybe} n */
const fine = (n) => (known(n) ? n.toFixed(4) : "–");

/** Units, in millions where they are. @param {Maybe} n */
export const units = (n) => (known(n) && n >= 1e6 ? `${(n / 1e6).toFixed(2)}M` : short(n));

/** @type {Figure[]} */
export const FIGURES = [
  { key: "usd", head: "cost, $", write: (v) => usd(v), better: -1, words: "the cost in dollars" },
  { key: "cost", head: "cost, units", write: units, better: -1, words: "input, and what the policy had a model write, in plain input tokens" },
  { key: "retention_visible", head: "K", write: fine, better: 1, words: "of the distinctive strings that calls needed, the share that was still visible" },
  { key: "retention_recoverable", head: "K + named", write: fine, better: 1, words: "the same, and those that the view names by item or episode" },
  { key: "retention_lines", head: "L", write: fine, better: 1, words: "of the whole lines that calls needed, the share that was still visible" },
  { key: "retention_passages", head: "P", write: fine, better: 1, words: "of the passages of four words that answers repeated, the share that was still visible; rare ones weigh more" },
  { key: "passes", head: "passes", write: full, better: -1, words: "how often items were taken out of the view; each breaks the provider’s cache" },
  { key: "prefix_breaks", head: "breaks", write: full, better: -1, words: "requests that did not extend the one before" },
  { key: "cached_share", head: "cached", write: (v) => pct(v), better: 1, words: "share of the input that the provider’s cache held" },
  { key: "tokens_sent", head: "sent", write: units, better: -1, words: "tokens of all requests" },
  { key: "peak", head: "peak", write: full, better: -1, words: "tokens of the largest request" },
  { key: "over_budget", head: "over budget", write: full, better: -1, words: "requests over budget" },
  { key: "prune_rate", head: "pruned", write: (v) => pct(v), better: 0, words: "mean share cut from requests that would have been over budget" },
  { key: "no_impact_rate", head: "no impact", write: fine, better: 1, words: "passes after which nothing was missed that they took" },
  { key: "refetches", head: "again", write: full, better: -1, words: "calls made again though an evicted one was the same" },
  { key: "requests", head: "requests", write: full, better: 0, words: "answers in the recording" },
  { key: "us_per_request", head: "µs", write: full, better: -1, words: "time of the policy’s part of a request" },
];

/** The measures of what was kept, one of which a chart shows. */
export const MEASURES = FIGURES.slice(2, 6);

/** The axis of costs: in dollars where they are known, else in millions of units. @param {boolean} dollars */
export const costAxis = (dollars) => ({
  name: dollars ? "cost in dollars" : "cost in millions of units",
  write: (/** @type {number} */ v, /** @type {number} */ digits) => (dollars ? usd(v, digits ? Math.max(digits, 2) : 0) : v.toFixed(digits)),
});

/** The axis of what was kept. @param {Figure} measure */
export const keptAxis = (measure) => ({ name: `${measure.head}: share still visible`, write: (/** @type {number} */ v, /** @type {number} */ digits) => v.toFixed(digits) });

/** A cost's place on its axis. @param {Maybe} dollars @param {Maybe} cost @param {boolean} inDollars */
export const costPlace = (dollars, cost, inDollars) => (inDollars ? (dollars ?? 0) : (cost ?? 0) / 1e6);

/** The policy that Plimsoll has by default. */
export const OURS = "cwl";

/** Of several policies that run together the last one evicts; each rung before it shades its ink. @param {string} policy */
export const inkOf = (policy) =>
  policy.split("+").reduce((mixed, rung, at) => {
    const own = `var(--p-${rung.split("@")[0]}, var(--p-cwl))`;
    return at ? `color-mix(in srgb, ${mixed} 35%, ${own})` : own;
  }, "");

/** The data of the page. A recording names itself and its model, at any length. @returns {any} */
export function read() {
  const data = JSON.parse(document.getElementById("data")?.textContent ?? "null");
  const named = [data.sessions, data.models].flatMap((list) => (Array.isArray(list) ? list : []));
  for (const one of named) one.name = cut(one.name);
  return data;
}

/** Draws the page in place of what stands there for want of scripts. @param {Shown} page */
export function show(page) {
  const root = document.getElementById("app");
  if (!root) return;
  root.textContent = "";
  render(/** @type {any} */ (page), root);
}

/** @param {{ title: string, about: Shown, children: Shown }} props */
export const Frame = ({ title, about, children }) => html`<header class="top"><span class="brand"><${Glyph}/><b>Plimsoll</b></span><span class="crumb"><span class="ell dim">the lab: recorded sessions, played again; nothing was sent</span></span></header>
  <main id="main" tabindex="-1"><div class="labhead"><h1>${title}</h1><p class="dim">${about}</p></div>${children}</main>`;

/** `s` where there are several. @param {number} n */
const s = (n) => (n === 1 ? "" : "s");

/** Prices that are of no model: then dollars are of the one that recorded a session. */
const OF_NO_MODEL = ["ideal", "default", "automatic", "breakpoint"];

/** What dollars are taken from, or why there are none. @param {{ models: Model[], prices: string }} props */
export function Dollars({ models: recorded, prices }) {
  const named = !OF_NO_MODEL.includes(prices);
  const models = named ? recorded.map((m) => ({ ...m, name: prices })) : recorded;
  const without = models.filter((m) => m.usd_per_million === null);
  const unit = `A unit is the price of one plain input token; cached and written ones cost what “${prices}” says.`;
  if (!without.length) {
    const rates = [...new Map(models.map((m) => [m.name, m.usd_per_million]))].slice(0, 6);
    return html`<p>${unit} Dollars are units at the list price in <code>config/models.toml</code>: ${rates.map(([name, rate], i) => `${i ? "; " : ""}${usd(rate)} for a million (${name})`).join("")}.</p>`;
  }
  const nameless = without.find((m) => m.name === "recorded" && !named);
  const unknown = [...new Set(without.filter((m) => m !== nameless).map((m) => m.name))];
  const why = [
    ...(nameless ? [`${full(nameless.sessions)} session${s(nameless.sessions)} name${nameless.sessions === 1 ? "s" : ""} no model`] : []),
    ...(unknown.length ? [`the price of ${unknown.join(", ")} is not known`] : []),
  ];
  return html`<p>${unit} There are units and no dollars${without.length < models.length ? " over all sessions" : ""}: ${why.join(", and ")}. <code>--prices MODEL</code> takes those of a model in <code>config/models.toml</code>.</p>`;
}

/** What every figure means. @param {{ models: Model[], prices: string }} props */
export const Meaning = ({ models, prices }) => html`<section class="panel" aria-labelledby="meaning"><div class="ph"><h2 id="meaning">What the figures mean</h2></div>
  <div class="pb"><${Dollars} models=${models} prices=${prices}/><dl class="meaning">${FIGURES.map((f) => html`<div key=${f.key}><dt>${f.head}</dt><dd>${f.words}</dd></div>`)}</dl></div></section>`;

/**
 * A table that sorts by any column, and scrolls inside its own box where it is too wide.
 * @param {{ name: string, head: { text: string, better: number, words?: string }[], rows: Row[], foot?: Cell[] }} props
 */
export function Table({ name, head, rows, foot }) {
  const [sort, setSort] = useState(/** @type {{ by: number, way: number } | null} */ (null));
  const value = (/** @type {Row} */ row) => row.cells[sort?.by ?? 0]?.v;
  const sorted = sort
    ? [...rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (typeof x === "string" || typeof y === "string") return sort.way * String(x).localeCompare(String(y));
      return sort.way * ((x ?? -Infinity) - (y ?? -Infinity));
    })
    : rows;
  const turn = (/** @type {number} */ by) => setSort(sort?.by === by ? { by, way: -sort.way } : { by, way: (head[by]?.better ?? 0) > 0 ? -1 : 1 });
  const line = (/** @type {Cell[]} */ cells) => cells.map((cell, i) => html`<td class=${`${i ? "num" : "lead"} ${cell.c ?? ""}`}>${cell.text}</td>`);
  return html`<div class="tw labtable" tabindex="0" role="region" aria-label=${name}><table>
    <thead><tr>${head.map((h, i) => html`<th key=${h.text} scope="col" class=${i ? "num" : "lead"} title=${h.words ?? ""} aria-sort=${sort?.by === i ? (sort.way > 0 ? "ascending" : "descending") : null}><button onClick=${() => turn(i)}>${h.text}${sort?.by === i ? html`<span aria-hidden="true">${sort.way > 0 ? " ▴" : " ▾"}</span>` : null}</button></th>`)}</tr></thead>
    <tbody>${sorted.map((row) => html`<tr key=${row.key} class=${row.c ?? ""}>${line(row.cells)}</tr>`)}</tbody>
    ${foot ? html`<tfoot><tr>${line(foot)}</tr></tfoot>` : null}</table></div>`;
}

/** A choice of one from a list. @param {{ label: string, v: string, on: (v: string) => void, o: [string, string][] }} props */
export const Choose = ({ label, v, on, o }) => html`<label class="choose dim">${label} <select class="chip" value=${v} onChange=${(/** @type {any} */ e) => on(e.target.value)}>
  ${o.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === v}>${text}</option>`)}</select></label>`;

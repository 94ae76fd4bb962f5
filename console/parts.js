// The small components that every view is made of: icons, discs for marks, gauges, tags, figures. Owns how
// one fact looks wherever it stands. Never fetches, and never knows in which view it is.
import { html, useState } from "./lib.js";
import { columns, line } from "./draw.js";
import { full, known, pct, short, signed, usd } from "./format.js";

/** @typedef {import("./lib.js").Shown} Shown */
/** @typedef {import("./shapes").MarkName} MarkName */
/** @typedef {import("./shapes").Episode} Episode */

/** How much of an item each mark leaves, in quarters of a disc. @type {Record<MarkName, number>} */
const LEFT = { live: 4, clipped: 3, masked: 2, tombstone: 1, trimmed: 1, removed: 0 };

const PATHS = {
  search: "M6.2 10.4a4.2 4.2 0 1 0 0-8.4 4.2 4.2 0 0 0 0 8.4ZM9.4 9.4l3 3",
  warn: "M7 1.8 13 12H1L7 1.8ZM7 5.6v3M7 10.2v.2",
  done: "M2.5 7.5l3 3 6-7",
  pin: "M5 1.5h4l-.6 4 2 2H3.6l2-2L5 1.5ZM7 7.5v5",
  copy: "M4.5 4.5v-3h8v8h-3M1.5 4.5h8v8h-8z",
  theme: "M7 9.6a2.6 2.6 0 1 0 0-5.2 2.6 2.6 0 0 0 0 5.2ZM7 .8v1.4M7 11.8v1.4M.8 7h1.4M11.8 7h1.4M2.6 2.6l1 1M10.4 10.4l1 1M11.4 2.6l-1 1M3.6 10.4l-1 1",
  right: "M5.5 3l4 4-4 4",
  down: "M3 5.5l4 4 4-4",
};

/** @param {{ n: keyof typeof PATHS, s?: number }} props */
export const Icon = ({ n, s = 14 }) => html`<svg class="i" width=${s} height=${s} viewBox="0 0 14 14" fill="none"
  stroke="currentColor" stroke-width="1.3" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[n]}/></svg>`;

/** The budget's mark. @param {{ s?: number }} props */
export const Glyph = ({ s = 18 }) => html`<svg width=${s} height=${s} viewBox="0 0 18 18" aria-hidden="true" fill="none"
  stroke="currentColor" stroke-width="1.7"><circle cx="9" cy="9" r="5.4"/><path d="M.6 9h16.8"/></svg>`;

/** A disc that empties: how much of an item a mark leaves. @param {{ m: MarkName, s?: number }} props */
export function Ball({ m, s = 12 }) {
  const quarters = LEFT[m];
  const end = ["", "M6 6V1.6A4.4 4.4 0 0 1 10.4 6Z", "M6 6V1.6A4.4 4.4 0 0 1 6 10.4Z", "M6 6V1.6A4.4 4.4 0 1 1 1.6 6Z"];
  return html`<svg class="i" width=${s} height=${s} viewBox="0 0 12 12" role="img" aria-label=${m}>
    <circle cx="6" cy="6" r="4.9" fill=${quarters === 4 ? "var(--sent)" : "none"} stroke=${quarters ? "var(--sent)" : "var(--ink3)"}
      stroke-width="1.1" stroke-dasharray=${quarters ? "none" : "1.6 1.4"}/>
    ${quarters > 0 && quarters < 4 ? html`<path d=${end[quarters]} fill="var(--sent)"/>` : null}</svg>`;
}

/** @param {{ a: MarkName, b: MarkName }} props */
export const Move = ({ a, b }) => html`<span class="mv"><${Ball} m=${a}/><span class="dim">→</span><${Ball} m=${b}/>
  <span class="wide" aria-hidden="true">${b}</span></span>`;

/**
 * How full a view is. The budget stands at four fifths, so that what is over it can be seen.
 * @param {{ v: number | null, budget: number | null, floor?: number | null, w?: number, h?: number }} props
 */
export function Gauge({ v, budget, floor = null, w = 120, h = 8 }) {
  if (!known(v) || !known(budget) || budget <= 0) {
    return html`<svg width=${w} height=${h + 6} role="img" aria-label="not recorded"><rect x="0" y="3" width=${w} height=${h} rx="2"
      fill="none" stroke="var(--line2)" stroke-dasharray="2 2"/></svg>`;
  }
  const x = (/** @type {number} */ t) => Math.min(1, (t / budget) * 0.8) * w;
  return html`<svg width=${w} height=${h + 6} role="img" aria-label=${`${full(v)} of ${full(budget)} tokens`}>
    <rect x="0" y="3" width=${w} height=${h} rx="2" fill="var(--line)"/>
    <rect x="0" y="3" width=${x(Math.min(v, budget))} height=${h} rx="2" fill="var(--sent)"/>
    ${v > budget ? html`<rect x=${x(budget)} y="3" width=${x(v) - x(budget)} height=${h} fill="var(--bad)"/>` : null}
    ${known(floor) ? html`<path d=${`M${x(floor)} 3v${h}`} stroke="var(--panel)" stroke-width="1.2"/>` : null}
    <path d=${`M${x(budget)} 0v${h + 6}`} stroke="var(--budget)" stroke-width="1.6"/></svg>`;
}

/** What was sent, turn by turn, against the budget. @param {{ d: number[], budget: number | null, w?: number, h?: number }} props */
export function Spark({ d, budget, w = 92, h = 24 }) {
  if (d.length < 2) return html`<span class="dim">–</span>`;
  const most = Math.max(known(budget) ? budget * 1.15 : 0, ...d, 1);
  const x = (/** @type {number} */ i) => 1 + (i / (d.length - 1)) * (w - 2);
  const y = (/** @type {number} */ v) => h - 1 - (v / most) * (h - 2);
  return html`<svg width=${w} height=${h} aria-hidden="true">
    ${known(budget) ? html`<path d=${`M0 ${y(budget)}H${w}`} stroke="var(--ink3)" stroke-width=".8" stroke-dasharray="2 2"/>` : null}
    <path d=${line(columns(d.map((_, i) => i), d, x), y)} fill="none" stroke="var(--sent)" stroke-width="1.3" stroke-linejoin="round"/></svg>`;
}

/**
 * A figure: what it is, its value, and what it is measured against.
 * @param {{ l: string, v?: Shown, u?: Shown, s?: Shown, c?: string, all?: boolean, children?: Shown }} props
 */
export const Fig = ({ l, v, u, s, c = "", all, children }) => html`<div class=${`fig${all ? " all" : ""}`}>
  <div class="lb">${l}</div>
  ${v === undefined ? null : html`<div class="row"><div class=${`v ${c}`}>${v}${u ? html`<small>${u}</small>` : null}</div>${children}</div>`}
  ${v === undefined ? children : null}${s ? html`<div class="s">${s}</div>` : null}</div>`;

/** The field that finds items by their text. The key / goes to it. @param {{ find: string, set: (text: string) => void }} props */
export const FindItem = ({ find, set }) => html`<label class="search finditem"><span class="dim"><${Icon} n="search"/></span><span class="sr">Find an item</span>
  <input id="find" placeholder="Find an item: a path, a command" value=${find} onInput=${(/** @type {any} */ e) => set(e.target.value.trim())}/><span class="kbd wide">/</span></label>`;

/** What the words of the page mean, for a pointer that rests on them. */
const TERMS = {
  pass: "A pass evicts old items when the next request would exceed the budget",
  budget: "The most tokens that the model is to read at once",
  floor: "A pass evicts items until the view is down to this",
  episode: "A piece of work that the model marked with a beginning and an end. It goes as a whole",
  mark: "How much of an item the model still reads: a full disc is all of it, a dotted ring nothing",
  own: "What Plimsoll itself took in a turn until its record was made, over all hops, without the provider’s time",
  first: "From the request’s head to the first byte that the agent could see, with the provider’s time and hidden hops",
  needed: "Whether a later answer used words of the item. In view: the view had them all the same",
};

/** A word with what it means. @param {{ t: keyof typeof TERMS, children: Shown }} props */
export const Term = ({ t, children }) => html`<abbr title=${TERMS[t]}>${children}</abbr>`;

/** One of a few. @param {{ v: string, on: (v: string) => void, o: [string, Shown][], label: string }} props */
export const Seg = ({ v, on, o, label }) => html`<div class="seg" role="group" aria-label=${label}>
  ${o.map(([key, text]) => html`<button key=${key} aria-pressed=${v === key} onClick=${() => on(key)}>${text}</button>`)}</div>`;

/** @param {{ on: boolean, set: (on: boolean) => void, n?: number | null, children: Shown }} props */
export const Chip = ({ on, set, n, children }) => html`<button class="chip" aria-pressed=${on} onClick=${() => set(!on)}>
  ${children}${n === undefined || n === null ? null : html` <b>${full(n)}</b>`}</button>`;

/** What is under the pointer. @param {{ x: number, y: number, children: Shown }} props */
export function Tip({ x, y, children }) {
  // It stands beside the pointer, on the side that has room; on a phone that is the wider one.
  const left = x > Math.max(innerWidth - 360, innerWidth / 2);
  const style = {
    maxWidth: `${Math.min(340, (left ? x : innerWidth - x) - 20)}px`,
    left: left ? "auto" : `${x + 14}px`,
    right: left ? `${innerWidth - x + 14}px` : "auto",
    top: `${Math.max(8, Math.min(y + 14, innerHeight - 260))}px`,
  };
  return html`<div class="tip" style=${style} aria-hidden="true">${children}</div>`;
}

/** @param {{ e: Episode | undefined | null }} props */
export const EpTag = ({ e }) => (e ? html`<span class=${`tag ${e.type}`} title=${e.name}>${e.name}</span>` : html`<span class="dim">unmarked</span>`);

const NEEDED = { "in view": "", missed: "bad", "read again": "warn", "asked again": "warn", recalled: "rec" };

/** What happened, in words. @type {Record<import("./shapes").Needed["how"], string>} */
const HOW = {
  "in view": "an answer used words of it, which the view still had: nothing was missed",
  missed: "an answer used words of it, which the view had no more",
  "read again": "the same was read once more",
  "asked again": "the same call was made once more",
  recalled: "the model had it recalled",
};

/** How an item was needed, as a sentence. @param {{ n: import("./shapes").Needed }} props */
export const NeedText = ({ n }) => html`<b>Needed later:</b> in turn ${n.turn} ${HOW[n.how]}${n.word ? html` (<code>${n.word}</code>)` : null}.`;

/** Whether an item was needed after it was evicted. @param {{ n: import("./shapes").Needed | null, told?: boolean }} props */
export function NeedTag({ n, told = true }) {
  if (!n) return html`<span class="dim">${told ? "no" : "–"}</span>`;
  return html`<span class=${`tag ${NEEDED[n.how]}`} title=${`In turn ${n.turn} ${HOW[n.how]}`}>${n.how}<span class="wide">, turn</span> ${n.turn}</span>`;
}

/**
 * Where the money went: what was not sent, less what that cost; signed, on one scale.
 * @param {{ m: import("./shapes").Money, money: boolean }} props
 */
export function Waterfall({ m, money }) {
  const gained = m.not_sent + m.breakpoints;
  const most = Math.max(gained, m.rewrites + m.hidden, 1e-9);
  const write = money ? signed : (/** @type {number} */ x) => `${x < 0 ? "−" : "+"}${short(Math.abs(x))}`;
  /** @type {[string, number, number, string, number, string][]} */
  const rows = [
    ["not sent", 0, m.not_sent, "color-mix(in srgb, var(--good) 55%, var(--panel))", m.not_sent, "good"],
    ["breakpoints set", m.not_sent, m.breakpoints, "color-mix(in srgb, var(--good) 35%, var(--panel))", m.breakpoints, "good"],
    ["cache rewrites", gained - m.rewrites, m.rewrites, "var(--bad)", -m.rewrites, "bad"],
    ["hidden hops, marks", Math.max(0, m.net), m.hidden, "var(--act)", -m.hidden, "warn"],
  ];
  // Most sessions have breakpoints of their own, or need none.
  const told = rows.filter((row) => m.breakpoints || row[0] !== "breakpoints set");
  return html`<div>${told.map(([name, from, size, fill, value, sense]) => html`<div class="wf" key=${name}>
    <span class="mid nw">${name}</span>
    <svg width="100%" height="8" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect x=${Math.max(0, (100 * from) / most)} width=${(100 * Math.max(0, size)) / most} height="8" fill=${fill}/></svg>
    <b class=${`num strong ${sense}`}>${write(value)}</b></div>`)}</div>`;
}

/** Copies a text, and says that it did. @param {{ text: string | (() => string), children?: Shown, disabled?: boolean, sm?: boolean }} props */
export function Copy({ text, children = "Copy", disabled = false, sm = true }) {
  const [done, set] = useState(false);
  const copy = async () => {
    await write(typeof text === "string" ? text : text());
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return html`<button class=${`btn${sm ? " sm" : ""}`} disabled=${disabled} onClick=${copy}><${Icon} n=${done ? "done" : "copy"} s=${12}/>
    <span aria-live="polite">${done ? "Copied" : children}</span></button>`;
}

/** Where the page is not served securely, a browser has no clipboard for it: a selected field does. @param {string} text */
async function write(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text).catch(() => undefined);
    return;
  }
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/**
 * A chart's facts as a table, for those who can't see the chart.
 * @param {{ name: string, head: string[], rows: () => Shown[][] }} props
 */
export function Facts({ name, head, rows }) {
  const [open, set] = useState(false);
  return html`<details class="facts" onToggle=${(/** @type {any} */ e) => set(e.currentTarget.open)}>
    <summary>${name} as a table</summary>
    ${open ? html`<div class="tw" tabindex="0" role="region" aria-label=${name}><table>
      <thead><tr>${head.map((h, i) => html`<th class=${i ? "num" : ""} scope="col">${h}</th>`)}</tr></thead>
      <tbody>${rows().map((row) => html`<tr>${row.map((cell, i) => html`<td class=${i ? "num" : ""}>${cell}</td>`)}</tr>`)}</tbody>
    </table></div>` : null}</details>`;
}

/** Saved, net, in dollars where the price is known and in units elsewhere. @param {import("./shapes").Accounts | null} a */
export function net(a) {
  if (a?.usd) return { money: a.usd, text: usd(a.usd.net), share: pct(a.usd.whole > 0 ? a.usd.net / a.usd.whole : null, 0), dollars: true };
  if (a?.units) return { money: a.units, text: `${short(a.units.net)} units`, share: pct(a.units.whole > 0 ? a.units.net / a.units.whole : null, 0), dollars: false };
  return null;
}

/** Whether a session is only watched: what it sends goes up as it comes, and its passes are what managing would have done. @param {import("./shapes").SessionRow} row */
export const isWatched = (row) => row.mode === "observe";
/** What a session saved; of one that is only watched, what it would have. @param {import("./shapes").SessionRow} row */
export const netOf = (row) => net(isWatched(row) ? row.projected : row.saved);
/** The size of what was sent last. @param {import("./shapes").SessionRow} row */
export const sizeOf = (row) => (isWatched(row) ? (row.in ?? row.client_tokens) : (row.out ?? row.view_tokens));

// The page that `plimsoll tune --html` writes: budgets and floors on recorded sessions, which pair to take
// and why, and maps of what each cost and kept. Owns which figures are mapped. Never chooses: the lab did,
// and its figures and words stand in the page.
import { html, useMemo, useNarrow, useState, useWidth } from "./lib.js";
import { count, full, known, pct, short, signed, usd } from "./format.js";
import { FIGURES, Frame, MEASURES, Meaning, Table, costAxis, costPlace, keptAxis, read, show, units } from "./lab_parts.js";
import { Copy, Facts, Fig, Seg } from "./parts.js";
import { Plane } from "./plane.js";

/** @typedef {Record<string, number | null>} Numbers */
/** @typedef {{ budget: number, floor: number | string } & Record<string, any>} Setting */
/** @typedef {{ budget: number, floor: number | string } | null} Taken */
/**
 * @typedef {{ settings: Setting[], untouched: Record<string, any>, recommended: Taken, thrifty: Taken, bend: Taken, safe: Taken, choice: string,
 *   front: number[], over: boolean[], prices: string, models: import("./lab_parts.js").Model[], sessions: number, sessions_left_out: number }} Data
 */
/** @typedef {{ key: string, name: string, note: string, value: (s: Setting) => number | null, write: (s: Setting) => import("./lib.js").Shown, less: boolean }} Mapped */

const data = /** @type {Data} */ (read());
const dollars = known(data.untouched["usd"]) && data.settings.every((s) => known(s["usd"]));

/** @param {Taken} a @param {Taken} b */
const same = (a, b) => a !== null && b !== null && a.budget === b.budget && a.floor === b.floor;
const taken = data.settings.findIndex((s) => same(s, data.recommended));
/** @param {Setting} s */
const nameOf = (s) => `${short(s.budget)} ${s.floor}`;
/** @param {Setting} s */
const ratio = (s) => (data.untouched["cost"] > 0 ? s["cost"] / data.untouched["cost"] : null);
/** @param {Record<string, any>} s */
const cost = (s) => (known(s["usd"]) ? usd(s["usd"]) : units(s["cost"]));
/** @param {Record<string, any>} s */
const beside = (s) => (known(s["usd"]) ? `${units(s["cost"])} units` : "units");

function Top() {
  const take = data.settings[taken];
  if (!take) return html`<div class="figs lab"><${Fig} l="Sent whole" v=${cost(data.untouched)} s=${beside(data.untouched)}/></div>`;
  const part = 1 - (ratio(take) ?? 1);
  return html`<div class="figs lab"><${Fig} l="Take budget" v=${full(take.budget)} u="tokens" s=${`with floor ${take.floor}`}/>
    <${Fig} l="Sent whole" v=${cost(data.untouched)} s=${beside(data.untouched)}/><${Fig} l="With it" v=${cost(take)} s=${beside(take)}/>
    <${Fig} l="Saved" v=${dollars ? signed(data.untouched["usd"] - take["usd"]) : pct(part, 0)} c=${part < 0 ? "bad" : "good"} s=${dollars ? `${pct(part, 0)} of sent whole` : "of sent whole"}/>
    <${Fig} l="Needed, and in view" v=${pct(take["retention_visible"])} s="of the strings that calls needed (K)"/></div>`;
}

function Choice() {
  const [why = "", lines = ""] = data.choice.split("\n\n");
  return html`<section class="panel" aria-labelledby="choice"><div class="ph"><h2 id="choice">What to take</h2></div>
    <div class="pb choice">${why.trim().split(/(?<=\.)\n/).map((words) => html`<p key=${words}>${words.replace(/\n/g, " ")}</p>`)}
      ${lines ? html`<pre class="code" tabindex="0">${lines.trim()}</pre><div class="acts"><${Copy} text=${lines}/></div>` : null}</div></section>`;
}

const FRONT = new Set(data.front);

function Front() {
  const [key, setKey] = useState(MEASURES[0]?.key ?? "");
  const [ref, w] = useWidth();
  const narrow = useNarrow();
  const measure = MEASURES.find((m) => m.key === key) ?? /** @type {import("./lab_parts.js").Figure} */ (MEASURES[0]);
  const points = useMemo(() => data.settings.map((s, i) => ({
    key: String(i), text: nameOf(s), x: costPlace(s["usd"], s["cost"], dollars), y: /** @type {number} */ (s[key] ?? 0), ink: i === taken ? "var(--ink)" : "var(--sent)", hollow: data.over[i] === true, strong: i === taken, best: FRONT.has(i),
  })), [key]);
  // The front is the lab's, which is that of K; of other measures a line would say what it did not.
  const front = key === "retention_visible" ? points.filter((p) => p.best).sort((a, b) => a.x - b.x) : [];
  // The names of what matters most are placed first.
  const ranked = [...points].sort((a, b) => Number(b.strong) - Number(a.strong) || Number(b.best) - Number(a.best));
  const setting = (/** @type {{ key: string }} */ p) => /** @type {Setting} */ (data.settings[Number(p.key)]);
  const told = (/** @type {{ key: string }} */ p) => [...FIGURES.slice(0, 8), ...FIGURES.slice(10, 12)].map((f) => [f.head, f.write(setting(p)[f.key])]);
  const name = (/** @type {{ key: string }} */ p) => `budget ${full(setting(p).budget)}, floor ${setting(p).floor}${Number(p.key) === taken ? ", the one to take" : ""}`;
  return html`<section class="panel" aria-labelledby="front"><div class="ph"><h2 id="front">Cost against what was kept</h2><span class="grow"></span><${Seg} label="Kept" v=${key} on=${setKey} o=${MEASURES.map((m) => [m.key, m.head])}/></div>
    <div class="pb"><p class="sub">Up and to the left is better. A point is a pair of budget and floor${taken >= 0 ? "; the largest is the one to take" : ""}.${front.length ? " The dashed line is the Pareto front: of the pairs on it none keeps more for less." : ""}${data.over.some(Boolean) ? " Hollow: more than one request in twenty stayed over budget." : ""}</p>
      <div ref=${ref}>${w ? html`<${Plane} label="Cost against what was kept, pair by pair" points=${ranked} front=${front} w=${w} narrow=${narrow}
        x=${costAxis(dollars)} y=${keptAxis(measure)}
        words=${(/** @type {any} */ p) => `${name(p)}: ${told(p).map(([a, b]) => `${a} ${b}`).join(", ")}`}
        tell=${(/** @type {any} */ p) => html`<b>${name(p)}</b>${told(p).map(([a, b]) => html`<div class="r" key=${a}><span>${a}</span>${b}</div>`)}`}/>` : null}</div></div>
    <${Facts} name="Cost and what was kept" head=${["budget, floor", ...FIGURES.slice(0, 6).map((f) => f.head), "× whole", "on the front"]} rows=${() => data.settings.map((s, i) => [`${full(s.budget)}, ${s.floor}`, ...FIGURES.slice(0, 6).map((f) => f.write(s[f.key])), ratio(s)?.toFixed(3) ?? "–", FRONT.has(i) ? "yes" : "no"])}/></section>`;
}

/** @type {Mapped[]} */
const MAPS = [
  { key: "cost", name: "Cost", note: "all input; below it the share of what sending everything costs", value: (s) => s["cost"], write: (s) => html`${cost(s)}<small>× ${ratio(s)?.toFixed(3) ?? "–"}</small>`, less: true },
  ...MEASURES.filter((m) => m.key !== "retention_recoverable").map((m) => /** @type {Mapped} */ ({ key: m.key, name: m.head, note: m.words, value: (s) => s[m.key], write: (s) => m.write(s[m.key]), less: false })),
  { key: "passes", name: "Passes", note: "how often items were taken out, each of which breaks the provider’s cache", value: (s) => s["passes"], write: (s) => full(s["passes"]), less: true },
];
const BUDGETS = [...new Set(data.settings.map((s) => s.budget))];
const FLOORS = [...new Set(data.settings.map((s) => s.floor))];

/** A figure at every pair: a row for each floor, a column for each budget. @param {{ m: Mapped }} props */
function Grid({ m }) {
  const values = data.settings.map(m.value).filter(known);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const good = (/** @type {Setting} */ s) => {
    const part = high > low ? ((m.value(s) ?? low) - low) / (high - low) : 0.5;
    return m.less ? 1 - part : part;
  };
  return html`<div class="map"><h3>${m.name}</h3><p class="sub">${m.note}</p><div class="tw" tabindex="0" role="region" aria-label=${m.name}><table>
    <thead><tr><th scope="col" class="lead">floor \\ budget</th>${BUDGETS.map((budget) => html`<th key=${budget} scope="col" class="num">${full(budget)}</th>`)}</tr></thead>
    <tbody>${FLOORS.map((floor) => html`<tr key=${floor}><th scope="row" class="lead">${floor}</th>${BUDGETS.map((budget) => {
      const i = data.settings.findIndex((s) => same(s, { budget, floor }));
      const s = data.settings[i];
      return s ? html`<td key=${budget} class=${`num cell${i === taken ? " take" : ""}${data.over[i] ? " over" : ""}`} style=${{ "--part": good(s).toFixed(2) }}>${m.write(s)}</td>` : html`<td key=${budget}></td>`;
    })}</tr>`)}</tbody></table></div></div>`;
}

function Maps() {
  return html`<section class="panel" aria-labelledby="maps"><div class="ph"><h2 id="maps">Maps</h2><span class="dim">the stronger the tint of a cell, the better${taken >= 0 ? "; the one to take is outlined" : ""}${data.over.some(Boolean) ? "; what left more than one request in twenty over budget is struck through" : ""}</span></div>
    <div class="maps">${MAPS.map((m) => html`<${Grid} key=${m.key} m=${m}/>`)}</div></section>`;
}

function All() {
  const rows = data.settings.map((s, i) => ({
    key: String(i), c: i === taken ? "sel" : "",
    cells: [{ v: s.budget, text: `${full(s.budget)}, ${s.floor}${i === taken ? " →" : FRONT.has(i) ? " *" : ""}` }, { v: ratio(s), text: ratio(s)?.toFixed(3) ?? "–" }, ...FIGURES.map((f) => ({ v: s[f.key], text: f.write(s[f.key]) }))],
  }));
  return html`<section class="panel" aria-labelledby="all"><div class="ph"><h2 id="all">All figures</h2><span class="dim">→ the one to take; * no other pair is both cheaper and keeps more of K</span></div>
    <${Table} name="The table of all figures" head=${[{ text: "budget, floor", better: 0 }, { text: "× whole", better: -1, words: "the cost, to what sending everything costs" }, ...FIGURES.map((f) => ({ text: f.head, better: f.better, words: f.words }))]} rows=${rows}/></section>`;
}

function Page() {
  const about = `cwl on ${count(data.sessions, "session")}${data.sessions_left_out ? ` (${full(data.sessions_left_out)} shorter ones left out)` : ""}, at ${count(data.settings.length, "pair")} of budget and floor · sent whole ${cost(data.untouched)}${dollars ? `, ${beside(data.untouched)}` : " units"} · prices “${data.prices}”`;
  return html`<${Frame} title="Budgets and floors on recorded sessions" about=${about}><${Top}/><${Choice}/>${data.settings.length ? html`<${Front}/><${Maps}/><${All}/>` : null}<${Meaning} models=${data.models} prices=${data.prices}/><//>`;
}

show(html`<${Page}/>`);

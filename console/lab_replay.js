// The page that `plimsoll replay --html` writes: policies on recorded sessions, what each cost and kept, and
// what it sent request by request. Owns which session, line and figures are shown. Never fetches: its figures
// stand in the page.
import { html, useMemo, useNarrow, useState, useWidth } from "./lib.js";
import { count, full, known, pct, short, signed, usd } from "./format.js";
import { Choose, FIGURES, Frame, MEASURES, Meaning, OURS, Table, costAxis, costPlace, inkOf, keptAxis, read, show, units } from "./lab_parts.js";
import { Requests, dashOf, sizeAt, turnsOf } from "./lab_series.js";
import { Chip, Facts, Fig, Seg } from "./parts.js";
import { Plane, frontOf } from "./plane.js";

/** @typedef {import("./lab_series.js").Packed} Packed */
/** @typedef {(number | null)[]} Figures one policy's, in the order of the page's names */
/**
 * @typedef {{ name: string, model: string, tokens: number, requests: number, rows: Figures[], by_budget: Figures[][], client: Packed,
 *   series: (Packed | null)[][], passes: [number, number][][][] }} Session
 */
/**
 * @typedef {{ figures: string[], policies: string[], settings: { budgets: number[], floor: string | number, annotate: string, prices: string },
 *   models: import("./lab_parts.js").Model[], left_out: number, total: Figures[], by_budget: Figures[][], sessions: Session[] }} Data
 */

const data = /** @type {Data} */ (read());
const budgets = data.settings.budgets;
const NONE = data.policies.indexOf("none");
/** A policy that leaves more than this share of its requests over budget is drawn hollow. */
const OVER = 0.1;

/** A figure of a policy. @param {Figures | undefined} row @param {string} key */
const of = (row, key) => row?.[data.figures.indexOf(key)] ?? null;

/** The policy that the figures at the top are of. */
const first = Math.max(0, data.policies.includes(OURS) ? data.policies.indexOf(OURS) : data.policies.findIndex((name) => name !== "none"));

function Top() {
  const [whole, row] = [NONE < 0 ? null : data.total[NONE], data.total[first]];
  const cost = (/** @type {Figures | null | undefined} */ r) => (r && known(of(r, "usd")) ? usd(of(r, "usd")) : units(r ? of(r, "cost") : null));
  const beside = (/** @type {Figures | null | undefined} */ r) => (r && known(of(r, "usd")) ? `${units(of(r, "cost"))} units` : "units");
  const name = data.policies[first];
  const [a, b] = [whole ? of(whole, "cost") : null, of(row, "cost")];
  const saved = known(a) && known(b) && a > 0 ? (a - b) / a : null;
  const [da, db] = [whole ? of(whole, "usd") : null, of(row, "usd")];
  return html`<div class="figs lab">
    ${whole ? html`<${Fig} l="Sent whole" v=${cost(whole)} s=${beside(whole)}/>` : null}
    <${Fig} l=${`With ${name}`} v=${cost(row)} s=${beside(row)}/>
    ${known(saved) ? html`<${Fig} l="Saved" v=${known(da) && known(db) ? signed(da - db) : pct(saved, 0)} c=${saved < 0 ? "bad" : "good"} s=${known(da) ? `${pct(saved, 0)} of sent whole` : "of sent whole"}/>` : null}
    <${Fig} l="Needed, and in view" v=${pct(of(row, "retention_visible"))} s="of the strings that calls needed (K)"/>
    <${Fig} l="Passes" v=${full(of(row, "passes"))} s=${`${full(of(row, "over_budget"))} of ${full(of(row, "requests"))} requests over budget`}/></div>`;
}

/** The rows that a scope has: at one line or summed, over all sessions or of one. @param {Session | null} session @param {number | null} line */
const rowsOf = (session, line) => {
  const from = session ?? { rows: data.total, by_budget: data.by_budget };
  return line === null ? from.rows : (from.by_budget[line] ?? from.rows);
};

/** @param {{ session: Session }} props */
function Front({ session }) {
  const [scope, setScope] = useState("all");
  const [key, setKey] = useState(MEASURES[0]?.key ?? "");
  const [ref, w] = useWidth();
  const narrow = useNarrow();
  const one = scope === "all" ? null : session;
  const measure = MEASURES.find((m) => m.key === key) ?? /** @type {import("./lab_parts.js").Figure} */ (MEASURES[0]);
  const points = useMemo(() => pointsOf(one, key), [one, key]);
  const dollars = points.every((p) => known(of(p.row, "usd")));
  const front = frontOf(points);
  const best = new Set(front.map((p) => p.key));
  // The names of what matters most are placed first.
  const ranked = points.map((p) => ({ ...p, best: best.has(p.key) })).sort((a, b) => Number(b.strong) - Number(a.strong) || Number(best.has(b.key)) - Number(best.has(a.key)));
  const find = (/** @type {{ key: string }} */ p) => points.find((own) => own.key === p.key);
  const told = (/** @type {{ key: string }} */ p) => FIGURES.slice(0, 12).map((f) => [f.head, f.write(of(find(p)?.row, f.key))]);
  return html`<section class="panel" aria-labelledby="front"><div class="ph"><h2 id="front">Cost against what was kept</h2><span class="grow"></span>
      <${Seg} label="Kept" v=${key} on=${setKey} o=${MEASURES.map((m) => [m.key, m.head])}/>${data.sessions.length > 1 ? html`<${Seg} label="Of" v=${scope} on=${setScope} o=${[["all", "All sessions"], ["one", "The one below"]]}/>` : null}</div>
    <div class="pb"><p class="sub">Up and to the left is better. The dashed line is the Pareto front: of the policies on it none keeps more for less.${points.some((p) => p.hollow) ? " Hollow: more than one request in ten stayed over budget." : ""}${budgets.length > 1 ? " Each policy is a line through its points at every budget." : ""}</p>
      <div ref=${ref}>${w ? html`<${Plane} label="Cost against what was kept, policy by policy" points=${ranked} front=${front} w=${w} narrow=${narrow}
        x=${costAxis(dollars)} y=${keptAxis(measure)}
        words=${(/** @type {any} */ p) => `${p.text}${best.has(p.key) ? ", on the front" : ""}: ${told(p).map(([a, b]) => `${a} ${b}`).join(", ")}`}
        tell=${(/** @type {any} */ p) => html`<b>${p.text}</b>${best.has(p.key) ? html`<span class="dim">, on the front</span>` : null}${told(p).map(([a, b]) => html`<div class="r" key=${a}><span>${a}</span>${b}</div>`)}`}/>` : null}</div></div>
    <${Facts} name="Cost and what was kept" head=${["Policy", ...FIGURES.slice(0, 6).map((f) => f.head), "× whole", "on the front"]} rows=${() => points.map((p) => [p.text, ...FIGURES.slice(0, 6).map((f) => f.write(of(p.row, f.key))), p.ratio === null ? "–" : p.ratio.toFixed(3), best.has(p.key) ? "yes" : "no"])}/></section>`;
}

/** @param {Session | null} session @param {string} key */
function pointsOf(session, key) {
  const lines = budgets.length > 1 ? budgets.map((budget, i) => ({ budget, rows: rowsOf(session, i) })) : [{ budget: budgets[0] ?? 0, rows: rowsOf(session, null) }];
  const dollars = lines.every(({ rows }) => rows.every((row) => known(of(row, "usd"))));
  return lines.flatMap(({ budget, rows }, i) =>
    rows.flatMap((row, at) => {
      const name = data.policies[at] ?? "";
      // What sends everything does so at every line.
      if (at === NONE && i > 0) return [];
      const several = budgets.length > 1 && at !== NONE;
      const whole = NONE < 0 ? null : of(rows[NONE], "cost");
      const cost = of(row, "cost");
      return [{
        key: `${name}/${budget}`, text: several ? `${name} ${short(budget)}` : name, row, x: costPlace(of(row, "usd"), cost, dollars), y: of(row, key) ?? 0, ink: inkOf(name),
        hollow: (of(row, "over_budget") ?? 0) > OVER * (of(row, "requests") ?? 0) && at !== NONE, strong: name === OURS, ratio: known(whole) && known(cost) && whole > 0 ? cost / whole : null,
        ...(several ? { line: name } : {}),
      }];
    }),
  );
}

const EVICTING = data.policies.filter((name) => name !== "none");
const FEW = EVICTING.filter((name) => [OURS, "cwl-paper", "recency"].includes(name));

/** @param {{ at: number, choose: (at: number) => void }} props */
function Series({ at, choose }) {
  const [line, setLine] = useState(0);
  const [shown, setShown] = useState(() => new Set(FEW.length ? FEW : EVICTING.slice(0, 3)));
  const [hover, setHover] = useState(/** @type {{ request: number, x: number, y: number } | null} */ (null));
  const [ref, w] = useWidth();
  const narrow = useNarrow();
  const session = /** @type {Session} */ (data.sessions[at]);
  const series = data.policies.flatMap((name, i) => (shown.has(name) && name !== "none" ? [{ name, sent: session.series[line]?.[i] ?? session.client, passes: session.passes[line]?.[i] ?? [] }] : []));
  const turn = (/** @type {string} */ name, /** @type {boolean} */ on) => setShown((had) => new Set(EVICTING.filter((own) => (own === name ? on : had.has(own)))));
  return html`<section class="panel" aria-labelledby="series"><div class="ph"><h2 id="series">Tokens by request</h2><span class="grow"></span>
      ${data.sessions.length > 1 ? html`<${Choose} label="session" v=${String(at)} on=${(/** @type {string} */ v) => choose(Number(v))} o=${data.sessions.map((s, i) => [String(i), `${s.name} (${short(s.tokens)} tokens, ${s.requests} requests)`])}/>` : html`<span class="dim ell">${session.name}</span>`}
      ${budgets.length > 1 ? html`<${Choose} label="budget" v=${String(line)} on=${(/** @type {string} */ v) => setLine(Number(v))} o=${budgets.map((budget, i) => [String(i), full(budget)])}/>` : null}</div>
    <div class="pb"><p class="sub">What each policy sent of the whole history. A drop is a pass, marked in its lane below: it takes items out of the view, and the provider’s cache of what stood behind them is lost.</p>
      <div class="chips" role="group" aria-label="Policies shown">${EVICTING.map((name) => html`<${Chip} key=${name} on=${shown.has(name)} set=${(/** @type {boolean} */ on) => turn(name, on)}><svg class="i" width="22" height="8" aria-hidden="true"><path d="M1 4H21" stroke=${inkOf(name)} stroke-width="2.2" stroke-dasharray=${dashOf(name)}/></svg>${name}<//>`)}</div>
      <div ref=${ref}>${w ? html`<${Requests} name=${session.name} client=${session.client} series=${series} requests=${session.requests} budget=${budgets[line] ?? 0} w=${w} narrow=${narrow} at=${hover} set=${setHover}/>` : null}</div></div>
    <${Facts} name="Tokens of each request" head=${["Request", "Whole", ...series.map((one) => one.name)]} rows=${() => turnsOf(session.client).slice(-500).map((n) => [n, full(sizeAt(session.client, n)), ...series.map((one) => `${full(sizeAt(one.sent, n))}${one.passes.some(([p]) => p === n) ? " ▾" : ""}`)])}/></section>`;
}

/** Marks the best of the policies that evict: who sends everything loses nothing, and that is no contest. @param {Figures[]} rows @param {import("./lab_parts.js").Figure} figure */
function cellsOf(rows, figure) {
  const values = rows.map((row) => of(row, figure.key));
  const rivals = values.filter((v, i) => i !== NONE && known(v)).map(Number);
  const best = figure.better === 0 || rivals.length < 2 ? null : figure.better > 0 ? Math.max(...rivals) : Math.min(...rivals);
  return values.map((v, i) => ({ v, text: figure.write(v), c: v !== null && v === best && i !== NONE ? "best" : "" }));
}

const heads = FIGURES.map((f) => ({ text: f.head, better: f.better, words: f.words }));

function All() {
  const columns = FIGURES.map((f) => cellsOf(data.total, f));
  const rows = data.policies.map((name, i) => ({
    key: name, c: name === OURS ? "ours" : "",
    cells: [{ v: name, text: html`<span class="dotname"><i style=${{ background: inkOf(name) }}></i>${name}</span>` }, ...columns.map((cells) => cells[i] ?? { v: null, text: "–" })],
  }));
  return html`<section class="panel" aria-labelledby="all"><div class="ph"><h2 id="all">All figures</h2><span class="dim">over ${count(data.sessions.length, "session")}${budgets.length > 1 ? ", summed over every budget" : ""}; in bold the best of those that evict</span></div>
    <${Table} name="The table of all figures" head=${[{ text: "policy", better: 0 }, ...heads]} rows=${rows}/></section>`;
}

/** @param {{ at: number, choose: (at: number) => void }} props */
function Sessions({ at, choose }) {
  const dollars = data.total.every((row) => known(of(row, "usd")));
  const [key, setKey] = useState(dollars ? "usd" : "cost");
  const figure = FIGURES.find((f) => f.key === key) ?? /** @type {import("./lab_parts.js").Figure} */ (FIGURES[0]);
  const sum = (/** @type {(s: Session) => number} */ f) => data.sessions.reduce((all, s) => all + f(s), 0);
  const rows = data.sessions.map((s, i) => ({
    key: String(i), c: i === at ? "sel" : "",
    cells: [
      { v: s.name, text: html`<button class="bare ell" aria-pressed=${i === at} title=${`${s.name}, ${s.model}`} onClick=${() => choose(i)}>${s.name}</button>` },
      { v: s.tokens, text: full(s.tokens) }, { v: s.requests, text: full(s.requests) }, ...cellsOf(s.rows, figure),
    ],
  }));
  const foot = [{ v: "", text: "all" }, { v: 0, text: full(sum((s) => s.tokens)) }, { v: 0, text: full(sum((s) => s.requests)) }, ...cellsOf(data.total, figure)];
  return html`<section class="panel" aria-labelledby="sessions"><div class="ph"><h2 id="sessions">By session</h2><span class="dim wide">choose one to see its requests above</span><span class="grow"></span>
      <${Choose} label="figure" v=${key} on=${setKey} o=${FIGURES.map((f) => [f.key, `${f.head}: ${f.words}`])}/></div>
    <${Table} name="The table of sessions" head=${[{ text: "session", better: 0 }, { text: "tokens", better: 1, words: "of its texts, tool names and arguments" }, { text: "requests", better: 1 }, ...data.policies.map((name) => ({ text: name, better: figure.better, words: figure.words }))]} rows=${rows} foot=${foot}/></section>`;
}

function Page() {
  const longest = data.sessions.reduce((best, s, i) => (s.requests > (data.sessions[best]?.requests ?? 0) ? i : best), 0);
  const [at, choose] = useState(longest);
  const set = data.settings;
  const about = `${count(data.sessions.length, "session")}${data.left_out ? ` (${full(data.left_out)} shorter ones left out)` : ""} · budget ${budgets.map(full).join(" + ")} · floor ${set.floor} · episodes ${set.annotate} · prices “${set.prices}”`;
  return html`<${Frame} title="Policies on recorded sessions" about=${about}><${Top}/><${Front} session=${data.sessions[at]}/><${Series} at=${at} choose=${choose}/><${All}/><${Sessions} at=${at} choose=${choose}/><${Meaning} models=${data.models} prices=${set.prices}/><//>`;
}

show(html`<${Page}/>`);

// What if: this session under another budget, floor or policy, played by the lab. Owns which are tried.
// Never compares a replay with the bill: both sides of every figure are replays.
import { html, useEffect, useMemo, useNarrow, useRef, useState, useWidth } from "./lib.js";
import { Refused, api, exportCommand } from "./api.js";
import { ticks } from "./draw.js";
import { full, known, pct, short, signed, usd } from "./format.js";
import { Failed } from "./load.js";
import { Copy, Glyph, Seg } from "./parts.js";
import { note, route } from "./route.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Point} Point */

const STEPS = [0.4, 0.5, 0.6, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5];
/** The lowest budget that the lab plays. */
const LEAST = 4000;
const FLOORS = /** @type {[string, string][]} */ ([["auto", "auto"], ["0.5", "0.5"], ["0.7", "0.7"], ["budget", "budget"]]);
const BESIDE = /** @type {[string, string][]} */ ([["", "nothing"], ["recency", "recency"], ["tool-prune", "tool-prune"], ["compaction", "compaction"]]);

/** @param {number} budget @param {string} floor @param {string} policy */
const keyOf = (budget, floor, policy) => `${budget}/${floor}/${policy}`;

/** Budgets around the session's own. @param {number} budget */
const around = (budget) => [...new Set(STEPS.map((s) => Math.max(LEAST, s === 1 ? budget : Math.round((budget * s) / 500) * 500)))].sort((a, b) => a - b);

/**
 * The points that are played so far; what is missing is asked for.
 * @param {Data} d @param {number[]} budgets @param {string} floor @param {string} beside @param {string} profile @param {boolean} off
 */
function usePoints(d, budgets, floor, beside, profile, off) {
  const [points, set] = useState(/** @type {Map<string, Point>} */ (new Map()));
  const [state, say] = useState({ played: 0, of: 0, done: false, error: /** @type {Refused | null} */ (null), took: 0 });
  const [round, setRound] = useState(0);
  const had = useRef({ profile, keys: /** @type {Set<string>} */ (new Set()) });
  useEffect(() => {
    if (off) return undefined;
    if (had.current.profile !== profile) {
      had.current = { profile, keys: new Set() };
      set(new Map());
    }
    const wanted = ["none", "cwl", ...(beside ? [beside] : [])].filter((p) => budgets.some((t) => !had.current.keys.has(keyOf(t, p === "none" || p === beside ? "auto" : floor, p))));
    if (!wanted.length) return undefined;
    const stop = new AbortController();
    const began = Date.now();
    say((s) => ({ ...s, played: 0, of: 0, done: false, error: null }));
    const run = async () => {
      // What stands beside it is played under its usual floor, and the session's policy under the one chosen.
      for (const policies of [wanted.filter((p) => p === "cwl"), wanted.filter((p) => p !== "cwl")]) {
        if (!policies.length) continue;
        const floors = policies[0] === "cwl" ? [floor] : ["auto"];
        await api.whatif(d.name, { budgets, floors, policies, ...(profile ? { profile } : {}) }, (line) => {
          if ("policy" in line) {
            const point = /** @type {Point} */ (line);
            const key = keyOf(point.budget, policies[0] === "cwl" ? floor : "auto", point.policy);
            set((old) => new Map(old).set(key, point));
          } else if (line.error) throw new Refused(line.error, 200, "");
          else say((s) => ({ ...s, played: line.played, of: line.of }));
        }, stop.signal);
        for (const p of policies) for (const t of budgets) had.current.keys.add(keyOf(t, p === "cwl" ? floor : "auto", p));
      }
      say((s) => ({ ...s, done: true, took: Date.now() - began }));
    };
    run().catch((caught) => {
      if (!stop.signal.aborted) say((s) => ({ ...s, error: caught instanceof Refused ? caught : new Refused(String(caught), 0, "") }));
    });
    return () => stop.abort();
  }, [d.name, budgets.join(), floor, beside, profile, off, round]);
  return { points, state, again: () => setRound(round + 1) };
}

/** Cost in dollars, or in units where the price is not known. @param {Point} p */
const costOf = (p) => p.usd ?? p.units;

/** @param {{ d: Data, off: boolean }} props */
export function WhatIf({ d, off }) {
  const own = d.session.row.budget ?? d.turns.budget.findLast(known) ?? 40_000;
  const budgets = useMemo(() => around(own), [own]);
  const [budget, setBudget] = useState(() => {
    const asked = Number(route().query["budget"] ?? 0);
    return budgets.includes(asked) ? asked : own;
  });
  const [floor, setFloor] = useState("auto");
  const [beside, setBeside] = useState("tool-prune");
  const [profile, setProfile] = useState("");
  const [typed, type] = useState("");
  const [ref, w] = useWidth();
  const narrow = useNarrow();
  const { points, state, again } = usePoints(d, budgets, floor, beside, profile, off);
  const series = (/** @type {string} */ policy, /** @type {string} */ f) => budgets.flatMap((t) => points.get(keyOf(t, f, policy)) ?? []);
  const base = series("none", "auto").at(-1);
  const now = points.get(keyOf(own, "auto", "cwl")) ?? points.get(keyOf(own, floor, "cwl"));
  const at = points.get(keyOf(budget, floor, "cwl"));
  const choose = (/** @type {number} */ t) => { setBudget(t); note({ budget: t }); };
  const command = `${exportCommand(d.session.row.session, "s.jsonl")}\nplimsoll replay s.jsonl --policies none,cwl${beside ? `,${beside}` : ""} --budget ${budget} \\\n  --floor ${floor} --prices ${word(d.session.row.model)}\nplimsoll tune s.jsonl`;
  return html`<div class="two bld"><section class="panel" aria-label="Cost under another budget"><div class="ph"><h2>Cost of this session under another budget</h2><span class="dim wide" role="status">${state.done ? `replayed by the lab, nothing is sent; ${(state.took / 1000).toFixed(1)} s` : state.of ? `played ${state.played} of ${state.of}` : "the lab plays it"}</span><span class="grow"></span><span class="dim wide">floor</span><${Seg} label="Floor" v=${floor} on=${setFloor} o=${FLOORS}/></div>
    ${state.error ? html`<div class="pb"><${Failed} error=${state.error} again=${again}/></div>` : null}
    <div class="pb"><div ref=${ref}></div>${state.done || state.error ? null : html`<div class="bar" role="progressbar" aria-label="Played" aria-valuemin="0" aria-valuemax=${state.of} aria-valuenow=${state.played}><i style=${{ width: `${state.of ? (100 * state.played) / state.of : 4}%` }}></i></div>`}
      ${w && base ? html`<${Curve} w=${w} narrow=${narrow} budgets=${budgets} budget=${budget} base=${base} main=${series("cwl", floor)} other=${beside ? series(beside, "auto") : []} at=${at ?? null}/>` : html`<div style=${{ height: narrow ? "220px" : "290px" }}></div>`}
      <${BudgetSlider} budgets=${budgets} budget=${budget} set=${choose}/>
      <div class="line small"><span class="sw" style=${{ borderColor: "var(--sent)" }}></span>cwl, floor ${floor}<span class="dim">beside it</span><${Seg} label="Beside it" v=${beside} on=${setBeside} o=${BESIDE}/>${beside ? html`<span class="sw" style=${{ borderColor: "var(--hist)" }}></span>${beside}` : null}
        <form class="line" onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); setProfile(typed.trim()); }}><label class="line dim">profile <input class="cut profile" value=${typed} placeholder="as it was" onInput=${(/** @type {any} */ e) => type(e.target.value)}/></label><button class="btn sm">Play</button></form></div></div>
    ${w && at ? html`<div class="smalls">${[["Needed, and in view", "visible", 0.5, 1], ["Cached share", "cached", 0.5, 1], ["Passes", "passes", 0, null]].map(([name, key, lo, hi]) => html`<${Small} key=${key} name=${name} field=${key} lo=${lo} hi=${hi} w=${narrow ? w : Math.max(160, (w - 28) / 3)} budgets=${budgets} budget=${budget} main=${series("cwl", floor)} other=${beside && key !== "passes" ? series(beside, "auto") : []}/>`)}</div>` : null}</section>
  <section class="panel" aria-label="As it is, and what if"><div class="ph"><h2>As it is, and what if</h2></div>${now && at && base ? html`<${Compare} now=${now} at=${at} base=${base} floor=${floor} own=${own}/>` : html`<div class="pb dim">The lab has not played these yet.</div>`}
    <div class="pb"><div class="sub cap">Both columns are replays under the lab’s own marks: compare them with each other, not with the bill. The same at a prompt:</div><pre class="code" tabindex="0">${command}</pre><div class="acts"><${Copy} text=${command}/>${budget === own ? null : html`<button class="btn sm" onClick=${() => choose(own)}>Back to ${short(own)}</button>`}</div></div></section></div>`;
}

/** A text as one word of a shell: clients name their models, and a person runs what the page says. @param {string} text */
const word = (text) => (/^[\w.:/@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** @param {{ budgets: number[], budget: number, set: (t: number) => void }} props */
function BudgetSlider({ budgets, budget, set }) {
  const place = budgetScale(budgets, 0, 1000);
  const nearest = (/** @type {number} */ v) => budgets.reduce((a, t) => (Math.abs(place(t) - v) < Math.abs(place(a) - v) ? t : a), budget);
  const keys = (/** @type {KeyboardEvent} */ e) => {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[e.key];
    if (!step) return;
    e.preventDefault();
    set(budgets[budgets.indexOf(budget) + step] ?? budget);
  };
  return html`<div class="budgetslide"><input type="range" min="0" max="1000" value=${place(budget)} aria-label="Budget" aria-valuetext=${`${full(budget)} tokens`} onKeyDown=${keys} onInput=${(/** @type {any} */ e) => set(nearest(Number(e.target.value)))}/></div>`;
}

/** Places budgets at even steps of their logarithm. @param {number[]} budgets @param {number} left @param {number} right */
function budgetScale(budgets, left, right) {
  const [first, last] = [budgets[0] ?? 1, budgets.at(-1) ?? 2];
  const span = Math.log(last / first) || 1;
  return (/** @type {number} */ t) => left + (Math.log(t / first) / span) * (right - left);
}

/** @param {{ w: number, narrow: boolean, budgets: number[], budget: number, base: Point, main: Point[], other: Point[], at: Point | null }} props */
function Curve({ w, narrow, budgets, budget, base, main, other, at }) {
  const H = narrow ? 220 : 290;
  const [left, right, bottom] = [50, 22, 34];
  const top = Math.max(costOf(base), ...main.map(costOf)) * 1.22;
  const x = budgetScale(budgets, left, w - right);
  const y = (/** @type {number} */ v) => 10 + (H - 10 - bottom) * (1 - Math.min(v, top * 1.1) / top);
  const money = known(base.usd);
  const write = (/** @type {number} */ v) => (money ? usd(v, 2) : short(v));
  const path = (/** @type {Point[]} */ points) => points.map((p, i) => `${i ? "L" : "M"}${x(p.budget).toFixed(1)} ${y(costOf(p)).toFixed(1)}`).join("");
  const shown = budgets.filter((t, i) => t === budget || (i % (narrow ? 3 : 1) === 0 && Math.abs(x(t) - x(budget)) > 34));
  return html`<svg width=${w} height=${H} role="img" aria-label=${`Cost by budget; sent whole ${write(costOf(base))}${at ? `, at ${full(budget)} ${write(costOf(at))}` : ""}`}>
    ${ticks(top, 5).map((v) => html`<g><path class=${v ? "ax" : "ax0"} d=${`M${left} ${Math.round(y(v)) + 0.5}H${w}`}/><text x=${left - 8} y=${y(v) + 4} text-anchor="end">${write(v)}</text></g>`)}
    ${shown.map((t) => html`<g><path class="ax0" d=${`M${x(t)} ${H - bottom}v4`}/><text x=${x(t)} y=${H - bottom + 17} text-anchor="middle" class=${t === budget ? "on" : ""}>${short(t)}</text></g>`)}
    <text x=${w} y=${H - 2} text-anchor="end">budget, tokens (log)</text>
    <path d=${`M${left} ${y(costOf(base))}H${w}`} stroke="var(--hist)" stroke-dasharray="5 4"/><text x=${left + 6} y=${y(costOf(base)) - 6} class="halo">sent whole ${write(costOf(base))}</text>
    <path d=${path(other)} fill="none" stroke="var(--hist)" stroke-width="1.5"/><path d=${path(main)} fill="none" stroke="var(--sent)" stroke-width="2.2" stroke-linejoin="round"/>
    ${main.map((p) => html`<circle cx=${x(p.budget)} cy=${y(costOf(p))} r="2.6" fill="var(--sent)"/>`)}
    <path d=${`M${x(budget)} 4V${H - bottom}`} stroke="var(--budget)" stroke-width="1.4"/>
    ${at ? html`<g transform=${`translate(${x(budget) - 9},${y(costOf(at)) - 9})`} color="var(--budget)"><rect x="2" y="3" width="14" height="12" fill="var(--panel)"/><${Glyph} s=${18}/></g>
      <text x=${x(budget) + (x(budget) < w * 0.3 ? 14 : -13)} y=${Math.max(16, y(costOf(at)) - 12)} text-anchor=${x(budget) < w * 0.3 ? "start" : "end"} class="halo on">${write(costOf(at))} at ${short(budget)}</text>` : null}</svg>`;
}

/** @param {{ name: string, field: "visible" | "cached" | "passes", lo: number, hi: number | null, w: number, budgets: number[], budget: number, main: Point[], other: Point[] }} props */
function Small({ name, field, lo, hi, w, budgets, budget, main, other }) {
  const H = 86;
  const values = [...main, ...other].map((p) => p[field]).filter(known);
  const least = hi === null ? lo : Math.min(lo, Math.floor(Math.min(...values, 1) * 10) / 10);
  const top = hi ?? Math.max(4, ...values);
  const x = budgetScale(budgets, 4, w - 46);
  const y = (/** @type {number} */ v) => 8 + (H - 26) * (1 - (v - least) / (top - least || 1));
  const path = (/** @type {Point[]} */ points) => points.filter((p) => known(p[field])).map((p, i) => `${i ? "L" : "M"}${x(p.budget).toFixed(1)} ${y(p[field] ?? 0).toFixed(1)}`).join("");
  const write = (/** @type {number} */ v) => (field === "passes" ? String(Math.round(v)) : pct(v, 0));
  const at = main.find((p) => p.budget === budget)?.[field];
  return html`<div><div class="sub">${name}</div><svg width=${w} height=${H} role="img" aria-label=${`${name}: ${known(at) ? write(at) : "not known"} at ${full(budget)}`}>
    <path class="ax0" d=${`M0 ${H - 17.5}H${w - 46}`}/><path class="ax" d=${`M0 8.5H${w - 46}`}/><text x=${w - 42} y="12">${write(top)}</text><text x=${w - 42} y=${H - 14}>${write(least)}</text>
    <path d=${path(other)} fill="none" stroke="var(--hist)" stroke-width="1.2"/><path d=${path(main)} fill="none" stroke="var(--sent)" stroke-width="1.6"/>
    ${known(at) ? html`<g><circle cx=${x(budget)} cy=${y(at)} r="3.4" fill="var(--panel)" stroke="var(--sent)" stroke-width="1.8"/><text x=${x(budget)} y=${y(at) + (y(at) < 20 ? 17 : -8)} text-anchor=${x(budget) > w * 0.6 ? "end" : "middle"} class="on halo">${write(at)}</text></g>` : null}</svg></div>`;
}

/** @param {{ now: Point, at: Point, base: Point, floor: string, own: number }} props */
function Compare({ now, at, base, floor, own }) {
  const money = known(base.usd);
  const cost = (/** @type {Point} */ p) => (money ? usd(costOf(p)) : short(costOf(p)));
  const saved = (/** @type {Point} */ p) => costOf(base) - costOf(p);
  const words = (/** @type {Point} */ p) => `${money ? signed(saved(p)) : short(saved(p))} · ${pct(saved(p) / (costOf(base) || 1), 0)}`;
  const over = (/** @type {(p: Point) => string} */ f) => [f(now), f(at)];
  /** @type {[string, string[], string?][]} */
  const rows = [
    ["Cost", over(cost)], ["Saved against whole", over(words), saved(at) < 0 ? "bad" : "good"], ["Largest request", over((p) => full(p.peak))],
    ["Passes", over((p) => full(p.passes))], ["Cached share", over((p) => pct(p.cached))], ["Requests", over((p) => full(p.requests))],
    ["Needed and in view", over((p) => pct(p.visible))], ["… or named there", over((p) => pct(p.recoverable))], ["Read again", over((p) => full(p.again))], ["Over budget", over((p) => full(p.over))],
  ];
  return html`<table><caption class="sr">As it is, and what if</caption><thead><tr><th scope="col">Figure</th><th class="num" scope="col">${full(own)}, ${now.floor}</th><th class="num" scope="col">${full(at.budget)}, ${floor}</th></tr></thead>
    <tbody>${rows.map(([name, [a, b], c]) => html`<tr key=${name}><td class="mid">${name}</td><td class="num mid">${a}</td><td class=${`num strong ${c ?? ""}`}>${b}</td></tr>`)}</tbody></table>`;
}

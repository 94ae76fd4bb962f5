// The picture of tokens by turn: what the agent's history came to, what was sent, the budget, the floor, and what
// happened in lanes below; and the brush that zooms it. Owns these two charts. Never fetches.
import { html, useRef } from "./lib.js";
import { apart, columns, events, line, steps, ticks, turnAt, turnScale, turnTicks, under } from "./draw.js";
import { full, known, short } from "./format.js";
import { Term } from "./parts.js";

/** @typedef {import("./shapes").Turns["columns"]} Columns */
/** @typedef {{ from: number, to: number }} Range */
/** @typedef {{ name: string, turns: number[], kind: "pass" | "hop" | "recall" | "cold" | "missed" }} Lane */

const LANE = 17;
const AXIS = 26;
const TOP = 14;

/** @param {boolean} narrow */
export const chartHeight = (narrow) => (narrow ? 210 : 262);

/** The columns of a range, with one turn more on each side so that lines reach the edges. @param {Columns} c @param {Range} range */
function part(c, { from, to }) {
  const first = Math.max(0, c.turn.findIndex((t) => t >= from - 1));
  const end = c.turn.findIndex((t) => t > to + 1);
  const last = end < 0 ? c.turn.length : end;
  return {
    turn: c.turn.slice(first, last), in: c.in.slice(first, last), out: c.out.slice(first, last),
    budget: c.budget.slice(first, last), floor: c.floor.slice(first, last), over: c.over.slice(first, last),
  };
}

/** @param {import("./draw.js").Value[]} values */
const most = (values) => values.reduce((/** @type {number} */ a, v) => (v !== null && v > a ? v : a), 0);

/**
 * The scale of tokens: whole, or up to a little over the budget.
 * @param {Columns} c @param {Range} range @param {boolean} upToBudget @param {number} height
 */
export function tokenScale(c, range, upToBudget, height) {
  const p = part(c, range);
  const budget = most(p.budget);
  const top = upToBudget && budget ? budget * 1.22 : Math.max(most(p.in), most(p.out), budget * 1.1, 1);
  return { top, y: (/** @type {number} */ v) => TOP + (height - TOP) * (1 - v / top) };
}

/** @param {{ kind: Lane["kind"], x: number, y: number }} props */
export function Shape({ kind, x, y }) {
  if (kind === "pass") return html`<path d=${`M${x - 4} ${y - 4}h8l-4 7z`} fill="var(--ink2)"/>`;
  if (kind === "hop") return html`<circle cx=${x} cy=${y} r="3" fill="none" stroke="var(--act)" stroke-width="1.5"/>`;
  if (kind === "recall") return html`<path d=${`M${x - 4} ${y + 4}h8l-4 -7z`} fill="var(--rec)"/>`;
  if (kind === "cold") return html`<path d=${`M${x} ${y - 4}v8m-3.5 -6l7 4m0 -4l-7 4`} stroke="var(--warn)" stroke-width="1.4"/>`;
  return html`<path d=${`M${x - 3} ${y - 3}l6 6m0 -6l-6 6`} stroke="var(--bad)" stroke-width="1.5"/>`;
}

/**
 * @param {{ c: Columns, named: string, range: Range, lanes: Lane[], w: number, narrow: boolean, upToBudget: boolean, turn: number | null,
 *   onTurn: (turn: number | null, x?: number, y?: number) => void, onOpen: (turn: number) => void }} props
 */
export function Tokens({ c, named, range, lanes, w, narrow, upToBudget, turn, onTurn, onOpen }) {
  const { from, to } = range;
  const H = chartHeight(narrow);
  const left = narrow ? 72 : 0;
  const p = part(c, range);
  const x = turnScale(from, to, left, w);
  const { y, top } = tokenScale(c, range, upToBudget, H);
  const history = columns(p.turn, p.in, x);
  const sent = columns(p.turn, p.out, x);
  const over = p.turn.filter((t, i) => p.over[i] === true && t >= from && t <= to);
  const overHeight = new Map(p.turn.map((t, i) => [t, [p.out[i], p.budget[i]]]));
  const height = H + AXIS + lanes.length * LANE;
  const passes = events(lanes.find((l) => l.kind === "pass")?.turns ?? [], x);
  const at = turn === null ? -1 : c.turn.indexOf(turn);
  const budget = p.budget.findLast(known);
  const values = ticks(top, narrow ? 4 : 5);
  const turns = turnTicks(from, to, w - left);
  const move = (/** @type {PointerEvent} */ e) => {
    const box = /** @type {Element} */ (e.currentTarget).getBoundingClientRect();
    onTurn(turnAt(e.clientX - box.left, from, to, left, w), e.clientX, box.top + 60);
  };
  const keys = (/** @type {KeyboardEvent} */ e) => {
    const now = turn ?? to;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: from, End: to, PageUp: now - 10, PageDown: now + 10 }[e.key];
    if (e.key === "Enter") onOpen(now);
    else if (e.key === "Escape") onTurn(null);
    else if (next === undefined) return;
    else onTurn(Math.max(from, Math.min(to, next)));
    e.preventDefault();
    e.stopPropagation();
  };
  const words = at < 0 ? "" : `turn ${turn}: history ${full(c.in[at])}, ${named} ${full(c.out[at])} tokens${lanes.filter((l) => l.turns.includes(/** @type {number} */ (turn))).map((l) => `, ${l.name}`).join("")}`;
  return html`<div class="chart" role="slider" tabindex="0" aria-label="Tokens by turn; Enter opens the view at the turn" aria-valuemin=${from} aria-valuemax=${to}
    aria-valuenow=${turn ?? to} aria-valuetext=${words || `turn ${to}`} onKeyDown=${keys} onPointerMove=${move} onPointerLeave=${() => onTurn(null)}
    onClick=${() => turn !== null && onOpen(turn)}><svg width=${w} height=${height} aria-hidden="true">
  <defs><clipPath id="plot"><rect x=${left} y=${TOP - 8} width=${w - left} height=${H - TOP + 8}/></clipPath></defs>
  ${values.map((v) => html`<path class=${v ? "ax" : "ax0"} d=${`M${left} ${Math.round(y(v)) + 0.5}H${w}`}/>`)}
  ${passes.map((e) => html`<path d=${`M${Math.round(e.x) + 0.5} ${TOP}V${H}`} stroke="var(--line2)" stroke-dasharray="1 3"/>`)}
  <g clip-path="url(#plot)"><path d=${under(history, y, H)} fill="var(--histfill)"/><path d=${under(sent, y, H)} fill="var(--sentfill)"/>
    <path d=${line(history, y)} fill="none" stroke="var(--hist)" stroke-width="1.4" stroke-linejoin="round"/>
    <path d=${steps(columns(p.turn, p.floor, x), y)} fill="none" stroke="var(--floor)" stroke-dasharray="4 3"/>
    <path d=${line(sent, y)} fill="none" stroke="var(--sent)" stroke-width="1.8" stroke-linejoin="round"/>
    ${events(over, x, 1).map((e) => {
      const [high, low] = overHeight.get(e.turn) ?? [];
      return known(high) && known(low) ? html`<path d=${`M${e.x} ${y(low)}V${y(high)}`} stroke="var(--bad)" stroke-width=${Math.max(1.5, Math.min(6, (w - left) / Math.max(1, to - from) - 1))}/>` : null;
    })}
    <path d=${steps(columns(p.turn, p.budget, x), y)} fill="none" stroke="var(--budget)" stroke-width="1.4"/></g>
  ${values.map((v) => (v && (!known(budget) || Math.abs(y(v) - y(budget)) > 12) ? html`<g><rect x="0" y=${y(v) - 15} width=${short(v).length * 7 + 4} height="13" fill="var(--panel)" opacity=".8"/><text x="2" y=${y(v) - 4}>${short(v)}</text></g>` : null))}
  ${turns.map((t, i) => {
    const place = x(t);
    return html`<g><path class="ax0" d=${`M${place} ${H}v4`}/><text x=${Math.max(3, Math.min(w - 4, place))} y=${H + 16} text-anchor=${place < left + 12 ? "start" : place > w - 16 ? "end" : "middle"}>${i ? "" : "turn "}${t}</text></g>`;
  })}
  ${lanes.map((lane, i) => {
    const middle = H + AXIS + i * LANE + 8;
    return html`<g><path class="ax" d=${`M0 ${H + AXIS + i * LANE + 0.5}H${w}`}/>${narrow ? html`<text x="4" y=${middle + 4}>${lane.name}</text>` : null}
      ${events(lane.turns.filter((t) => t >= from && t <= to), x).map((e) => html`<${Shape} kind=${lane.kind} x=${e.x} y=${middle}/>`)}</g>`;
  })}
  ${narrow && known(budget) ? html`<text x=${w - 4} y=${y(budget) - 6} text-anchor="end" fill="var(--budget)" font-weight="600" class="budget">budget ${short(budget)}</text>` : null}
  ${at >= 0 ? html`<g><path d=${`M${x(/** @type {number} */ (turn))} ${TOP}V${height}`} stroke="var(--ink3)"/>
    ${known(c.in[at]) ? html`<circle cx=${x(/** @type {number} */ (turn))} cy=${y(Math.min(top, c.in[at]))} r="3" fill="var(--panel)" stroke="var(--hist)" stroke-width="1.6"/>` : null}
    ${known(c.out[at]) ? html`<circle cx=${x(/** @type {number} */ (turn))} cy=${y(Math.min(top, c.out[at]))} r="3.2" fill="var(--panel)" stroke="var(--sent)" stroke-width="1.8"/>` : null}</g>` : null}
  </svg></div>`;
}

/** The names of the lines at their right ends. @param {{ c: Columns, named: string, range: Range, upToBudget: boolean }} props `named` is what the line of views is called */
export function Ends({ c, named, range, upToBudget }) {
  const { y, top } = tokenScale(c, range, upToBudget, chartHeight(false));
  const i = c.turn.indexOf(range.to);
  const [budget, sent, history, floor] = [c.budget[i], c.out[i], c.in[i], c.floor[i]];
  const all = [
    { v: budget, text: html`<svg class="i" width="14" height="14" viewBox="0 0 18 18" fill="none" stroke="currentColor" stroke-width="1.9" aria-hidden="true"><circle cx="9" cy="9" r="5.4"/><path d="M.6 9h16.8"/></svg> <${Term} t="budget">budget<//> ${short(budget)}`, style: { color: "var(--budget)", fontWeight: 600 } },
    { v: sent, text: `${short(sent)} ${named}`, style: { color: "var(--sent)" } },
    { v: history, text: `${known(history) && history > top ? "↑ " : ""}${short(history)} history`, style: { color: "var(--ink3)" } },
    { v: floor, text: `${short(floor)} floor`, style: { color: "var(--ink3)" } },
  ].filter((e) => known(e.v));
  const places = apart(all.map((e) => y(Math.min(top, /** @type {number} */ (e.v)))), 15);
  return html`<div class="ends" aria-hidden="true">${all.map((e, at) => html`<div style=${{ ...e.style, top: `${Math.max(0, (places[at] ?? 0) - 8)}px` }}>${e.text}</div>`)}</div>`;
}

/** The whole session, small; dragging over it chooses the turns that all charts show. @param {{ c: Columns, range: Range, set: (range: Range | null) => void, w: number, narrow: boolean }} props */
export function Brush({ c, range, set, w, narrow }) {
  const H = 30;
  const start = useRef(/** @type {number | null} */ (null));
  const first = c.turn[0] ?? 1;
  const last = c.turn.at(-1) ?? 1;
  const left = narrow ? 72 : 0;
  const x = turnScale(first, last, left, w);
  const top = Math.max(most(c.in), most(c.out), 1);
  const y = (/** @type {number} */ v) => H - 2 - (v / top) * (H - 4);
  const whole = range.from === first && range.to === last;
  const at = (/** @type {PointerEvent} */ e) => turnAt(e.clientX - /** @type {Element} */ (e.currentTarget).getBoundingClientRect().left, first, last, left, w);
  const least = Math.min(4, last - first);
  const choose = (/** @type {number} */ a, /** @type {number} */ b) => {
    if (Math.abs(b - a) >= least) set({ from: Math.max(first, Math.min(a, b)), to: Math.min(last, Math.max(a, b)) });
  };
  const keys = (/** @type {KeyboardEvent} */ e) => {
    const wide = range.to - range.from;
    const step = Math.max(1, Math.round(wide / 10));
    if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
      const from = Math.max(first, Math.min(last - wide, range.from + (e.key === "ArrowLeft" ? -step : step)));
      choose(from, from + wide);
    } else if (e.key === "ArrowUp" || e.key === "+") choose(range.from + step, range.to - step);
    else if (e.key === "ArrowDown" || e.key === "-") choose(Math.max(first, range.from - step), Math.min(last, range.to + step));
    else if (e.key === "Home" || e.key === "Escape") set(null);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  return html`<div class="brush" role="slider" tabindex="0" aria-label="Turns shown: arrows up and down zoom, left and right move" aria-valuemin=${first} aria-valuemax=${last}
    aria-valuenow=${range.from} aria-valuetext=${`turns ${range.from} to ${range.to}`} onKeyDown=${keys} onDblClick=${() => set(null)}
    onPointerDown=${(/** @type {any} */ e) => { e.currentTarget.setPointerCapture(e.pointerId); start.current = at(e); }}
    onPointerMove=${(/** @type {any} */ e) => { if (start.current !== null) choose(start.current, at(e)); }}
    onPointerUp=${() => { start.current = null; }}><svg width=${w} height=${H} aria-hidden="true">
    <rect width=${w} height=${H} fill="var(--sunk)"/>
    <path d=${line(columns(c.turn, c.in, x), y)} fill="none" stroke="var(--hist)"/><path d=${line(columns(c.turn, c.out, x), y)} fill="none" stroke="var(--sent)"/>
    ${whole ? null : html`<g><rect x="0" y="0" width=${Math.max(0, x(range.from))} height=${H} fill="var(--bg)" opacity=".72"/><rect x=${x(range.to)} y="0" width=${Math.max(0, w - x(range.to))} height=${H} fill="var(--bg)" opacity=".72"/>
      <rect x=${x(range.from)} y=".5" width=${Math.max(2, x(range.to) - x(range.from))} height=${H - 1} fill="none" stroke="var(--sent)"/></g>`}</svg></div>`;
}

// Tokens by request: what an agent's history came to, and what each policy sent of it, with its passes in
// lanes below. Owns this chart of the lab's page. Never reads data: it is given a session's series.
import { html } from "./lib.js";
import { apart, columns, events, line, ticks, turnAt, turnScale, turnTicks, under } from "./draw.js";
import { full, short, tick } from "./format.js";
import { inkOf, OURS } from "./lab_parts.js";
import { Tip } from "./parts.js";
import { Shape, chartHeight } from "./tokens.js";

/** Numbers of requests with sizes; no numbers mean 1, 2, 3 …. @typedef {[number[], number[]]} Packed */
/** What one policy sent, and before which requests it made a pass. @typedef {{ name: string, sent: Packed, passes: [number, number][] }} Series */

const LANE = 17;
const AXIS = 26;
const TOP = 14;

/** Policies are told apart without their inks too. @type {Record<string, string>} */
const DASH = { "cwl-paper": "7 2 2 2", compaction: "4 3", "keep-recent": "2 2", "three-tier": "8 3", hybrid: "1 2" };
/** @param {string} name */
export const dashOf = (name) => DASH[name] ?? "none";

/** @param {Packed} packed @returns {number[]} */
export const turnsOf = (packed) => (packed[0].length ? packed[0] : packed[1].map((_, i) => i + 1));

/** The size at a request, or at the nearest one that is known. @param {Packed} packed @param {number} request */
export function sizeAt(packed, request) {
  const [numbers, sizes] = packed;
  if (!numbers.length) return sizes[request - 1] ?? null;
  let best = 0;
  for (let i = 1; i < numbers.length; i += 1) if (Math.abs((numbers[i] ?? 0) - request) < Math.abs((numbers[best] ?? 0) - request)) best = i;
  return sizes[best] ?? null;
}

/**
 * @param {{ name: string, client: Packed, series: Series[], requests: number, budget: number, w: number, narrow: boolean,
 *   at: { request: number, x: number, y: number } | null, set: (at: { request: number, x: number, y: number } | null) => void }} props
 */
export function Requests({ name, client, series, requests, budget, w, narrow, at, set }) {
  const H = chartHeight(narrow) + (narrow ? 0 : 60);
  // Names of lanes at the left, and of lines at the right where there is room.
  const left = narrow ? 96 : 124;
  const right = narrow ? w - 8 : w - 118;
  const last = Math.max(1, requests);
  const x = turnScale(1, last, left, right);
  const top = Math.max(budget * 1.05, ...client[1], ...series.flatMap((one) => one.sent[1]), 1);
  const y = (/** @type {number} */ v) => TOP + (H - TOP) * (1 - v / top);
  const history = columns(turnsOf(client), client[1], x);
  const values = ticks(top, narrow ? 4 : 6);
  const height = H + AXIS + series.length * LANE + 4;
  const ends = [
    { text: `budget ${short(budget)}`, v: budget, ink: "var(--budget)" },
    ...series.map((one) => ({ text: one.name, v: one.sent[1].at(-1) ?? 0, ink: inkOf(one.name) })),
    { text: "whole", v: client[1].at(-1) ?? 0, ink: "var(--ink3)" },
  ];
  const places = apart(ends.map((e) => Math.max(TOP, y(e.v))), 14);
  const place = (/** @type {number} */ request, /** @type {Element} */ box) => {
    const on = box.getBoundingClientRect();
    set({ request, x: on.left + x(request), y: on.top + 50 });
  };
  const keys = (/** @type {any} */ e) => {
    const now = at?.request ?? last;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 1, End: last, PageUp: now - 10, PageDown: now + 10 }[/** @type {string} */ (e.key)];
    if (e.key === "Escape") set(null);
    else if (next === undefined) return;
    else place(Math.max(1, Math.min(last, next)), e.currentTarget);
    e.preventDefault();
  };
  const move = (/** @type {any} */ e) => {
    const box = e.currentTarget.getBoundingClientRect();
    place(turnAt(e.clientX - box.left, 1, last, left, right), e.currentTarget);
  };
  const now = at?.request ?? last;
  const told = [{ name: "whole", v: sizeAt(client, now), pass: false }, ...series.map((one) => ({ name: one.name, v: sizeAt(one.sent, now), pass: one.passes.some(([n]) => n === now) }))];
  return html`<div class="chart" role="slider" tabindex="0" aria-label=${`Tokens by request of ${name}`} aria-valuemin="1" aria-valuemax=${last} aria-valuenow=${now}
    aria-valuetext=${`request ${now}: ${told.map((t) => `${t.name} ${full(t.v)}${t.pass ? ", a pass" : ""}`).join("; ")}`} onKeyDown=${keys} onPointerMove=${move} onPointerDown=${move} onPointerLeave=${(/** @type {PointerEvent} */ e) => e.pointerType !== "touch" && set(null)} onBlur=${() => set(null)}><svg width=${w} height=${height} aria-hidden="true">
    ${values.map((v) => html`<g><path class=${v ? "ax" : "ax0"} d=${`M${left} ${Math.round(y(v)) + 0.5}H${right}`}/><text class="tick" x=${left - 8} y=${y(v) + 4} text-anchor="end">${tick(v)}</text></g>`)}
    <path d=${under(history, y, H)} fill="var(--histfill)"/><path d=${line(history, y)} fill="none" stroke="var(--hist)" stroke-width="1.3" stroke-linejoin="round"/>
    <path d=${`M${left} ${y(budget)}H${right}`} stroke="var(--budget)" stroke-width="1.4"/>
    ${[...series].sort((a, b) => Number(a.name === OURS) - Number(b.name === OURS)).map((one) => html`<path key=${one.name} d=${line(columns(turnsOf(one.sent), one.sent[1], x), y)} fill="none" stroke=${inkOf(one.name)} stroke-width=${one.name === OURS ? 2.2 : 1.4} stroke-dasharray=${dashOf(one.name)} stroke-linejoin="round"/>`)}
    ${turnTicks(1, last, right - left).map((t, i) => html`<g><path class="ax0" d=${`M${x(t)} ${H}v4`}/><text x=${x(t)} y=${H + 16} text-anchor=${i ? "middle" : "start"}>${i ? "" : "request "}${t}</text></g>`)}
    ${series.map((one, i) => {
      const middle = H + AXIS + i * LANE + 8;
      return html`<g key=${one.name}><path class="ax" d=${`M0 ${H + AXIS + i * LANE + 0.5}H${right}`}/><text x="2" y=${middle + 4} style=${{ fill: inkOf(one.name) }}>${one.name}</text>
        ${events(one.passes.map(([n]) => n), x).map((e) => html`<${Shape} kind="pass" x=${e.x} y=${middle}/>`)}</g>`;
    })}
    ${narrow ? html`<text x=${right - 4} y=${y(budget) - 5} text-anchor="end" class="budget halo">budget ${short(budget)}</text>`
      : ends.map((e, i) => html`<text key=${e.text} class="name" x=${right + 8} y=${(places[i] ?? 0) + 4} style=${{ fill: e.ink }}>${e.text}</text>`)}
    ${at ? html`<path d=${`M${x(at.request)} ${TOP}V${height}`} stroke="var(--ink3)"/>` : null}</svg>
    ${at ? html`<${Tip} x=${at.x} y=${at.y}><b>Request ${at.request}</b>${told.map((t) => html`<div class="r" key=${t.name}><span>${t.name}${t.pass ? " ▾ pass" : ""}</span>${full(t.v)}</div>`)}<//>` : null}</div>`;
}

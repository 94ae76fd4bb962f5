// Points on a plane of two measures: round ticks, a name beside each point, the front, and what is under the
// pointer or chosen by keys. Owns this chart. Never knows what the measures mean.
import { html, useMemo, useState } from "./lib.js";
import { labels, ticksBetween } from "./draw.js";
import { Tip } from "./parts.js";

/** @typedef {import("./lib.js").Shown} Shown */
/**
 * A point. A hollow one is discounted by whoever draws it; a strong one is the one to look at first, and the best
 * ones come next.
 * @typedef {{ key: string, text: string, x: number, y: number, ink: string, hollow?: boolean, strong?: boolean, best?: boolean, line?: string }} Point
 */
/** @typedef {{ name: string, write: (v: number, digits: number) => string }} Axis */
/** @typedef {Point & { px: number, py: number, all: Point[] }} Spot */

const [LEFT, RIGHT, TOP, BOTTOM] = [54, 14, 30, 44];
/** Points nearer than this are one spot with one name. */
const ONE = 3;
/** Of more points than this, a name far from its point is only of the best. */
const MANY = 16;
/** Names in one label at most. */
const NAMES = 2;

/** @type {CanvasRenderingContext2D | null} */
let pen = null;

/** The width of a name in pixels. @param {string} text */
function widthOf(text) {
  pen ??= document.createElement("canvas").getContext("2d");
  if (!pen) return text.length * 7;
  pen.font = `600 11px ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(pen.measureText(text).width) + 1;
}

/** A name for all points of a spot. @param {Point[]} all */
function nameOf(all) {
  const names = [...new Set(all.map((p) => p.text))];
  return names.length > NAMES ? `${names.slice(0, NAMES).join(", ")} +${names.length - NAMES}` : names.join(", ");
}

/** @param {Point[]} points @param {(v: number) => number} x @param {(v: number) => number} y @returns {Spot[]} */
function spotsOf(points, x, y) {
  /** @type {Spot[]} */
  const spots = [];
  for (const point of points) {
    const [px, py] = [x(point.x), y(point.y)];
    const same = spots.find((s) => Math.hypot(s.px - px, s.py - py) < ONE);
    if (same) same.all.push(point);
    else spots.push({ ...point, px, py, all: [point] });
  }
  return spots;
}

/** @param {number} from @param {number} to @param {number} low @param {number} high */
const scale = (from, to, low, high) => (/** @type {number} */ v) => from + ((v - low) / (high - low || 1)) * (to - from);

/**
 * The points that no other beats, in the order of their cost: none is both cheaper and higher.
 * @template {{ x: number, y: number }} P
 * @param {P[]} points @returns {P[]}
 */
export function frontOf(points) {
  let best = -Infinity;
  return [...points].sort((a, b) => a.x - b.x || b.y - a.y).filter((p) => p.y > best && ((best = p.y), true));
}

/**
 * The first points have their names placed first. `tell` says what is known of a point.
 * @param {{ label: string, points: Point[], front: { x: number, y: number }[], x: Axis, y: Axis, w: number, narrow: boolean, tell: (p: Point) => Shown, words: (p: Point) => string }} props
 */
export function Plane({ label, points, front, x, y, w, narrow, tell, words }) {
  const [near, setNear] = useState(/** @type {{ key: string, x: number, y: number } | null} */ (null));
  const H = narrow ? 320 : 400;
  const xs = points.map((p) => p.x);
  const ys = points.map((p) => p.y);
  const across = ticksBetween(Math.min(...xs), Math.max(...xs), Math.max(2, Math.floor((w - LEFT - RIGHT) / (narrow ? 90 : 130))));
  const up = ticksBetween(Math.min(...ys), Math.max(...ys), narrow ? 4 : 6);
  const sx = scale(LEFT + 10, w - RIGHT - 10, across.ticks[0] ?? 0, across.ticks.at(-1) ?? 1);
  const sy = scale(H - BOTTOM - 10, TOP + 4, up.ticks[0] ?? 0, up.ticks.at(-1) ?? 1);
  const spots = spotsOf(points, sx, sy);
  const names = spots.map((s) => nameOf(s.all));
  const corners = front.map((p) => /** @type {[number, number]} */ ([sx(p.x), sy(p.y)]));
  // No name stands on the front: it goes to the right from one of its points, and then up to the next.
  const along = corners.slice(1).flatMap(([x2, y2], i) => {
    const [x1, y1] = corners[i] ?? [x2, y2];
    return /** @type {import("./draw.js").Box[]} */ ([[x1, y1 - 1, x2, y1 + 1], [x2 - 1, y2, x2 + 1, y1]]);
  });
  const reach = (/** @type {Spot} */ s) => (s.strong || s.best || spots.length <= MANY ? 120 : narrow ? 4 : 40);
  const places = useMemo(
    () => labels(spots.map((s, i) => ({ x: s.px, y: s.py, w: widthOf(names[i] ?? ""), r: s.strong ? 7 : 5, reach: reach(s) })), [LEFT, TOP - 8, w - 2, H - BOTTOM - 2], along),
    [points, w, H],
  );
  const order = [...spots].sort((a, b) => a.px - b.px || a.py - b.py);
  const at = order.findIndex((s) => s.key === near?.key);
  const look = (/** @type {Spot | undefined} */ spot, /** @type {Element} */ box) => {
    const place = box.getBoundingClientRect();
    setNear(spot ? { key: spot.key, x: place.left + spot.px, y: place.top + spot.py } : null);
  };
  const move = (/** @type {any} */ e) => {
    const place = e.currentTarget.getBoundingClientRect();
    const [px, py] = [e.clientX - place.left, e.clientY - place.top];
    const found = [...spots].sort((a, b) => Math.hypot(a.px - px, a.py - py) - Math.hypot(b.px - px, b.py - py))[0];
    look(found && Math.hypot(found.px - px, found.py - py) < 22 ? found : undefined, e.currentTarget);
  };
  const keys = (/** @type {any} */ e) => {
    const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: order.length - 1 }[/** @type {string} */ (e.key)];
    if (e.key === "Escape") setNear(null);
    else if (next === undefined) return;
    else look(order[Math.max(0, Math.min(order.length - 1, next))], e.currentTarget);
    e.preventDefault();
  };
  const shown = spots.find((s) => s.key === near?.key);
  const path = corners.map(([px, py], i) => (i ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `M${px.toFixed(1)} ${py.toFixed(1)}`)).join("");
  const lines = new Set(points.map((p) => p.line).filter((name) => name !== undefined));
  return html`<div class="plane" role="listbox" tabindex="0" aria-label=${label} aria-activedescendant=${at < 0 ? null : `spot-${at}`} onKeyDown=${keys} onPointerMove=${move} onPointerDown=${move}
    onPointerLeave=${(/** @type {PointerEvent} */ e) => e.pointerType !== "touch" && setNear(null)} onBlur=${() => setNear(null)}>
    <div class="sr" role="presentation">${order.map((s, i) => html`<div key=${s.key} role="option" id=${`spot-${i}`} aria-selected=${i === at}>${s.all.map(words).join("; ")}</div>`)}</div>
    <svg width=${w} height=${H} aria-hidden="true">
    ${up.ticks.map((v) => html`<g><path class="ax" d=${`M${LEFT} ${Math.round(sy(v)) + 0.5}H${w - RIGHT}`}/><text class="tick" x=${LEFT - 8} y=${sy(v) + 4} text-anchor="end">${y.write(v, up.digits)}</text></g>`)}
    ${across.ticks.map((v) => html`<g><path class="ax0" d=${`M${Math.round(sx(v)) + 0.5} ${H - BOTTOM}v4`}/><text class="tick" x=${sx(v)} y=${H - BOTTOM + 17} text-anchor="middle">${x.write(v, across.digits)}</text></g>`)}
    <path class="ax0" d=${`M${LEFT} ${H - BOTTOM + 0.5}H${w - RIGHT}`}/>
    <text x=${w - RIGHT} y=${H - 8} text-anchor="end">${x.name}</text><text x="4" y="13">${y.name}</text>
    ${[...lines].map((name) => {
      const own = points.filter((p) => p.line === name);
      return html`<path d=${own.map((p, i) => `${i ? "L" : "M"}${sx(p.x).toFixed(1)} ${sy(p.y).toFixed(1)}`).join("")} fill="none" stroke=${own[0]?.ink} stroke-width="1" opacity=".6"/>`;
    })}
    <path class="front" d=${path} fill="none" stroke="var(--ink3)" stroke-width="1.3" stroke-dasharray="5 4"/>
    ${spots.map((s, i) => {
      const place = places[i];
      return place?.far ? html`<path d=${`M${s.px} ${s.py}L${place.edge} ${place.y - 4}`} stroke="var(--ink3)" stroke-width=".7"/>` : null;
    })}
    ${spots.map((s) => html`<g><circle class="point" cx=${s.px} cy=${s.py} r=${s.strong ? 6.5 : 4.5} fill=${s.hollow ? "var(--panel)" : s.ink} stroke=${s.ink} stroke-width="1.8"/>
      ${s.key === near?.key ? html`<circle cx=${s.px} cy=${s.py} r=${s.strong ? 10 : 8} fill="none" stroke="var(--focus)" stroke-width="1.6"/>` : null}</g>`)}
    ${spots.map((s, i) => {
      const place = places[i];
      return place ? html`<text class=${`name halo${s.strong ? " strong" : ""}`} x=${place.x} y=${place.y} text-anchor=${place.anchor} style=${{ fill: s.ink }}>${names[i]}</text>` : null;
    })}</svg>
    ${near && shown ? html`<${Tip} x=${near.x} y=${near.y}>${shown.all.slice(0, 2).map((p, i) => html`${i ? html`<hr/>` : null}${tell(p)}`)}${shown.all.length > 2 ? html`<hr/><span class="dim">and ${shown.all.length - 2} more at the same place</span>` : null}<//>` : null}</div>`;
}

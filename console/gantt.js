// Episodes by turn: when each was worked on, how long it stayed whole, when it was evicted, what builds on
// what. Owns this chart and its keys. Never fetches; the turns it shows are the timeline's.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { events, turnScale } from "./draw.js";
import { full, short } from "./format.js";

/** @typedef {import("./shapes").Episode} Episode */
/** @typedef {import("./tokens.js").Range} Range */

const ROW = 22;
const HIGH = 540;

/** @param {Episode} e */
export const kindOf = (e) => (e.type === "expl" ? "exploration" : "act");

/** An episode's facts in a sentence. @param {Episode} e */
export const wordsOf = (e) =>
  `${e.name}, ${kindOf(e)}, ${e.end === null ? `open since turn ${e.start}` : `turns ${e.start} to ${e.end}`}, ${full(e.tokens)} tokens, ${full(e.now)} in view${e.first_evicted === null ? "" : `, first evicted at turn ${e.first_evicted}`}${e.gone === null ? "" : `, removed at turn ${e.gone}`}`;

/** One episode's bar and what became of it. @param {{ e: Episode, y: number, x: (t: number) => number, last: number, narrow: boolean, w: number }} props */
function Bar({ e, y, x, last, narrow, w }) {
  const ink = e.type === "expl" ? "var(--expl)" : "var(--act)";
  const mid = y + ROW / 2;
  const from = x(e.start);
  const to = Math.max(from + 4, x(e.end ?? last));
  const first = e.first_evicted === null ? null : x(e.first_evicted);
  const gone = e.gone === null ? null : x(e.gone);
  const end = x(last);
  const right = to > w * 0.55;
  return html`<g>${narrow ? html`<text x=${right ? from - 5 : to + 6} y=${mid + 4} text-anchor=${right ? "end" : "start"} fill="var(--ink2)">${e.name}</text>`
    : html`<path d=${`M${to} ${mid}H${first ?? gone ?? end}`} stroke=${ink} stroke-width="3" opacity=".45"/>
      ${first !== null && first < (gone ?? end) ? html`<path d=${`M${first} ${mid}H${gone ?? end}`} stroke=${ink} stroke-width="1.6" stroke-dasharray="2 3" opacity=".8"/>` : null}`}
    <rect x=${from} y=${y + 5} width=${to - from} height=${ROW - 10} rx="2.5" fill=${ink}/>
    ${e.end === null ? html`<path d=${`M${to - 5} ${y + 3}l6 ${ROW / 2 - 3}l-6 ${ROW / 2 - 3}`} fill=${ink}/>` : null}
    ${first !== null && !narrow ? html`<g><circle cx=${first} cy=${mid} r="3.6" fill="var(--panel)" stroke=${ink} stroke-width="1.3"/><path d=${`M${first} ${mid - 3.6}a3.6 3.6 0 0 1 0 7.2z`} fill=${ink}/></g>` : null}
    ${gone !== null && !narrow ? html`<circle cx=${gone} cy=${mid} r="3.6" fill="var(--panel)" stroke=${ink} stroke-width="1.3"/>` : null}</g>`;
}

/**
 * @param {{ episodes: Episode[], passes: number[], range: Range, last: number, w: number, narrow: boolean, turn: number | null,
 *   sel: string | null, choose: (name: string | null) => void, onHover: (e: Episode | null, x: number, y: number) => void, plot: any }} props
 */
export function Gantt({ episodes, passes, range, last, w, narrow, turn, sel, choose, onHover, plot }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [near, setNear] = useState(/** @type {string | null} */ (null));
  const height = episodes.length * ROW;
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const until = Math.min(episodes.length, Math.ceil((top + HIGH) / ROW) + 10);
  const place = new Map(episodes.map((e, i) => [e.name, i]));
  const x = turnScale(range.from, range.to, 0, w);
  const chosen = sel === null ? null : episodes[place.get(sel) ?? -1];
  const related = new Set(chosen ? [chosen.name, ...chosen.deps, ...episodes.filter((e) => e.deps.includes(chosen.name)).map((e) => e.name)] : []);
  const shown = episodes.slice(first, until);
  useLayoutEffect(() => {
    // A live session's newest work stands at the end.
    if (scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [Boolean(episodes.length)]);
  useEffect(() => {
    const at = sel === null ? undefined : place.get(sel);
    const box = scroller.current;
    if (at === undefined || !box) return;
    if (at * ROW < box.scrollTop) box.scrollTop = at * ROW - ROW;
    else if ((at + 2) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (at + 2) * ROW - box.clientHeight;
  }, [sel]);
  const keys = (/** @type {KeyboardEvent} */ e) => {
    const at = sel === null ? -1 : (place.get(sel) ?? -1);
    const next = { ArrowDown: at + 1, ArrowUp: at < 0 ? episodes.length - 1 : at - 1, Home: 0, End: episodes.length - 1, PageDown: at + 10, PageUp: at - 10 }[e.key];
    if (e.key === "Escape") choose(null);
    else if (next === undefined) return;
    else choose(episodes[Math.max(0, Math.min(episodes.length - 1, next))]?.name ?? null);
    e.preventDefault();
    e.stopPropagation();
  };
  const rowAt = (/** @type {PointerEvent} */ e) => episodes[Math.floor((e.clientY - /** @type {Element} */ (e.currentTarget).getBoundingClientRect().top) / ROW)] ?? null;
  const hot = (/** @type {string} */ name) => name === sel || name === near;
  const arrows = shown.flatMap((e) => e.deps.map((d) => ({ e, d })));
  return html`<div class="gscroll gantt" style=${{ maxHeight: `${HIGH + 16}px` }} ref=${scroller} onScroll=${(/** @type {any} */ e) => setTop(e.currentTarget.scrollTop)} tabindex="0" role="listbox"
    aria-label="Episodes by turn" aria-activedescendant=${chosen ? `ep-${place.get(chosen.name)}` : null} onKeyDown=${keys}>
    <div class="sr" role="presentation">${shown.map((e) => html`<div key=${e.name} role="option" id=${`ep-${place.get(e.name)}`} aria-selected=${e.name === sel}>${wordsOf(e)}</div>`)}</div>
    <div class="tl" aria-hidden="true"><div class="wide" style=${{ paddingTop: `${first * ROW}px` }}>${shown.map((e) => html`<div key=${e.name} class=${`gl${e.name === sel ? " on" : e.name === near ? " near" : ""}`} onClick=${() => choose(e.name === sel ? null : e.name)}><span class=${`k ${e.type}`}>${e.type}</span><span class="ell">${e.name}</span></div>`)}</div>
    <div ref=${plot}><svg width=${w} height=${height} onPointerMove=${(/** @type {any} */ p) => { const e = rowAt(p); setNear(e?.name ?? null); onHover(e, p.clientX, p.clientY); }}
      onPointerLeave=${() => { setNear(null); onHover(null, 0, 0); }} onClick=${(/** @type {any} */ p) => { const e = rowAt(p); choose(e && e.name !== sel ? e.name : null); }}>
      <defs><clipPath id="rows"><rect x="-6" y="0" width=${w + 12} height=${height}/></clipPath></defs>
      ${events(passes.filter((t) => t >= range.from && t <= range.to), x).map((p) => html`<path d=${`M${Math.round(p.x) + 0.5} 0V${height}`} stroke="var(--line2)" stroke-dasharray="1 3"/>`)}
      ${shown.map((e, i) => (hot(e.name) ? html`<rect x="0" y=${(first + i) * ROW} width=${w} height=${ROW} fill=${e.name === sel ? "var(--sel)" : "var(--hover)"}/>` : null))}
      <g clip-path="url(#rows)">${arrows.map(({ e, d }) => {
        const from = place.get(d);
        const on = /** @type {Episode | undefined} */ (episodes[from ?? -1]);
        if (from === undefined || !on) return null;
        const strong = hot(e.name) || hot(d);
        if (narrow && !strong) return null;
        const [x1, y1, x2, y2] = [x(on.end ?? last), from * ROW + ROW / 2, x(e.start), /** @type {number} */ (place.get(e.name)) * ROW + ROW / 2];
        return html`<path d=${`M${x2} ${y2 - 5}V${y1 + 6}Q${x2} ${y1} ${Math.max(x1, x2 - 7)} ${y1}H${x1}`} fill="none" stroke=${strong ? "var(--expl)" : "var(--line2)"} stroke-width=${strong ? 1.6 : 1}/>`;
      })}
      ${shown.map((e, i) => html`<g key=${e.name} opacity=${chosen && !related.has(e.name) ? 0.35 : 1}><${Bar} e=${e} y=${(first + i) * ROW} x=${x} last=${last} narrow=${narrow} w=${w}/></g>`)}</g>
      ${turn !== null ? html`<path d=${`M${x(turn)} 0V${height}`} stroke="var(--ink3)"/>` : null}</svg></div>
    <div class="wide" style=${{ paddingTop: `${first * ROW}px` }}>${shown.map((e) => html`<div key=${e.name} class="gr"><span class="dim">${short(e.tokens)} → </span><span class="strong">${short(e.now)}</span></div>`)}</div></div></div>`;
}

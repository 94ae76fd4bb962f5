// One stacked bar: what a view is made of, against the budget and the floor. Owns this bar and its list. Never
// reckons the parts: they are given.
import { html, useWidth } from "./lib.js";
import { full, known } from "./format.js";

/** @typedef {import("./history.js").Part} Part */

/** @param {{ parts: Part[], budget: number | null, floor: number | null, open?: string | null }} props */
export function Now({ parts, budget, floor, open = null }) {
  const [ref, w] = useWidth();
  const sum = parts.reduce((a, p) => a + p.tokens, 0);
  const most = Math.max(known(budget) ? budget : 0, sum, 1) * 1.02;
  const x = (/** @type {number} */ v) => (v / most) * w;
  let from = 0;
  const places = parts.map((p) => {
    const at = from;
    from += p.tokens;
    return at;
  });
  const crowded = known(budget) && known(floor) && x(budget) - x(floor) < 190;
  return html`<div class="pb"><div class="nowbar" ref=${ref}>
    ${known(budget) ? html`<span class="lbl strong" style=${{ right: `${w - x(budget)}px`, paddingRight: "5px" }}>budget ${full(budget)}</span>` : null}
    ${known(floor) ? html`<span class="lbl dim" style=${crowded ? { right: `${w - x(floor) + 4}px` } : { left: `${x(floor) + 4}px` }}>floor ${full(floor)}</span>` : null}
    <svg width=${w} height="38" aria-hidden="true"><defs><pattern id="room" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="var(--line2)"/></pattern></defs>
      <rect x="0" y="6" width=${w} height="26" rx="4" fill="url(#room)" stroke="var(--line)"/>
      ${parts.map((p, i) => (p.tokens ? html`<rect x=${x(places[i] ?? 0)} y="6" width=${Math.max(0.5, x(p.tokens) - 1.5)} height="26" fill=${p.fill}><title>${p.name}: ${full(p.tokens)}</title></rect>` : null))}
      ${known(floor) ? html`<path d=${`M${x(floor)} 1V37`} stroke="var(--ink)" stroke-width="1.5" stroke-dasharray="3 3"/>` : null}
      ${known(budget) ? html`<path d=${`M${x(budget)} 0V38`} stroke="var(--budget)" stroke-width="2"/>` : null}</svg></div>
    <ul class="lg">${parts.map((p) => html`<li key=${p.part} class=${p.tokens ? "" : "dim"}><span class="sq" style=${p.tokens ? { background: p.fill } : { boxShadow: "inset 0 0 0 1px var(--line2)" }}></span>
      <span class="ell">${p.part === "open" && open ? `open: ${open}` : p.name}</span><b>${full(p.tokens)}</b></li>`)}</ul></div>`;
}

// The timeline of a session: tokens, parts and episodes on one axis of turns. Owns which turns are shown
// and which is under the pointer, so that all three tell of the same one. Never reckons savings.
import { html, useMemo, useNarrow, useRef, useState, useWidth } from "./lib.js";
import { PinButton, RecallWords } from "./asks.js";
import { count, full, known, pct, short, usd } from "./format.js";
import { Gantt } from "./gantt.js";
import { at, cachedAt, missedAt, openAt, partsAt, partsNow } from "./history.js";
import { Now } from "./now.js";
import { EpTag, Facts, Seg, Tip, isWatched } from "./parts.js";
import { go, note, route, to } from "./route.js";
import { Brush, Ends, Shape, Tokens } from "./tokens.js";
import { Tools } from "./tools.js";
import { whyMissed } from "./turns.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./tokens.js").Lane} Lane */
/** @typedef {import("./shapes").Episode} Episode */

/** @param {Data} d @returns {Lane[]} */
function lanesOf(d) {
  const c = d.turns;
  const where = (/** @type {(i: number) => boolean} */ yes) => c.turn.filter((_, i) => yes(i));
  return [
    { name: "passes", kind: "pass", turns: where((i) => (c.passes[i] ?? 0) > 0) },
    { name: "hidden hops", kind: "hop", turns: where((i) => (c.hops[i]?.length ?? 0) > 1) },
    { name: "recalls", kind: "recall", turns: where((i) => (c.recalled[i] ?? 0) > 0) },
    { name: "cache missed", kind: "cold", turns: where((i) => Boolean(c.missed[i])) },
    { name: "missed later", kind: "missed", turns: d.items ? missedAt(d.items.list) : [] },
  ];
}

/** What the line of views is called. @param {Data} d */
const nameOfSent = (d) => (isWatched(d.session.row) ? "would be sent" : "sent");

/** @param {{ d: Data, i: number }} props */
function Readout({ d, i }) {
  const c = d.turns;
  /** @type {[string, string, string, boolean?][]} */
  const rows = [
    ["var(--hist)", "agent’s history", full(c.in[i])], ["var(--sent)", nameOfSent(d), full(c.out[i])],
    ["var(--budget)", "budget", full(c.budget[i])], ["var(--floor)", "floor", full(c.floor[i]), true],
  ];
  return html`<div class="r dim">turn ${c.turn[i]}<b class="dim">tokens</b></div>
    ${rows.map(([ink, name, value, dash]) => html`<div class="r" key=${name}><span class=${`sw${dash ? " dash" : ""}`} style=${{ borderColor: ink }}></span>${name}<b>${value}</b></div>`)}`;
}

/** What the readout lacks. @param {{ d: Data, i: number, x: number, y: number }} props */
function TurnTip({ d, i, x, y }) {
  const c = d.turns;
  const pass = d.session.passes.find((p) => p.turn === c.turn[i]);
  const account = c.account[i];
  /** @type {[string, string][]} */
  const rows = [["of it cached", pct(cachedAt(c, i))]];
  const [paid, whole] = isWatched(d.session.row) ? ["would have cost", "cost"] : ["cost", "sent whole"];
  if (account?.usd) rows.push([paid, usd(account.usd.paid, 4)], [whole, usd(account.usd.whole, 4)]);
  else if (account?.units) rows.push([`${paid}, units`, short(account.units.paid)], [`${whole}, units`, short(account.units.whole)]);
  return html`<${Tip} x=${x} y=${y}><b>Turn ${c.turn[i]}</b>${rows.map(([name, v]) => html`<div class="r"><span>${name}</span>${v}</div>`)}
    ${pass ? html`<hr/><div class="r"><span>${isWatched(d.session.row) ? "would-be pass" : "pass"}</span>${short(pass.before)} → ${short(pass.after)}</div><div class="r"><span>items moved</span>${full(pass.items)}</div>` : null}
    ${c.missed[i] ? html`<hr/><div class="r"><span>cache missed</span>${short(c.missed[i].tokens)}</div><div>${whyMissed(c.missed[i])}</div>` : null}
    ${c.fail_open[i] ? html`<hr/><div class="r"><span>failed open</span>${c.fail_open[i]}</div>` : null}<//>`;
}

/** @param {{ d: Data, e: Episode, off: boolean }} props */
function EpisodeBox({ d, e, off }) {
  const builds = d.session.episodes.filter((o) => o.deps.includes(e.name));
  const ids = (d.items?.list ?? []).filter((i) => i.episode !== null && d.session.episodes[i.episode] === e && i.role === "call").map((i) => i.id);
  const evicted = e.first_evicted !== null;
  return html`<div class="epbox" aria-live="polite"><div class="line"><${EpTag} e=${e}/><span class="dim">${e.end === null ? `open since turn ${e.start}` : `turns ${e.start}–${e.end}`} · ${count(e.items, "item")} · ${full(e.tokens)} → ${full(e.now)} tokens${evicted ? ` · first evicted at turn ${e.first_evicted}` : ""}${e.gone !== null ? `, removed at ${e.gone}` : ""}</span>
    <span class="grow"></span>${builds.length ? html`<span class="dim">needed by</span>${builds.slice(0, 4).map((b) => html`<${EpTag} e=${b}/>`)}` : null}
    ${evicted && ids.length ? html`<${RecallWords} id=${e.name}/>` : null}
    ${ids.length ? html`<${PinButton} d=${d} off=${off} id=${e.name} pinned=${d.session.pins.includes(e.name)}/>` : null}</div>
    ${e.finding ? html`<p>${e.finding}</p>` : null}</div>`;
}

/** @param {{ d: Data, off: boolean }} props */
export function Timeline({ d, off }) {
  const narrow = useNarrow();
  const c = d.turns;
  const first = c.turn[0] ?? 1;
  const last = c.turn.at(-1) ?? 1;
  const [zoom, setZoom] = useState(/** @type {import("./tokens.js").Range | null} */ (null));
  const range = zoom ?? { from: first, to: last };
  const [hover, setHover] = useState(/** @type {{ turn: number, x?: number, y?: number } | null} */ (null));
  const [over, setOver] = useState(/** @type {{ e: Episode, x: number, y: number } | null} */ (null));
  const [sel, setSel] = useState(/** @type {string | null} */ (route().query["episode"] ?? null));
  const [scale, setScale] = useState("all");
  const [ref, w] = useWidth();
  const plot = useRef(null);
  const lanes = useMemo(() => lanesOf(d), [c, d.items]);
  const turn = hover?.turn ?? null;
  const i = at(c, turn ?? range.to);
  const choose = (/** @type {string | null} */ name) => { setSel(name); note({ episode: name }); };
  const episodes = useMemo(() => d.session.episodes.filter((e) => e.start <= range.to && (e.gone ?? e.end ?? last) >= range.from), [d.session.episodes, range.from, range.to]);
  const chosen = d.session.episodes.find((e) => e.name === sel);
  const shown = c.turn[i] ?? last;
  const named = nameOfSent(d);
  const parts = useMemo(() => (shown === d.session.row.turn && d.session.parts ? partsNow(d.session.parts) : d.items ? partsAt(d.session, c, d.items.list, shown) : null), [shown, d.session, d.items]);
  const counts = [d.session.episodes.filter((e) => e.type === "expl").length, d.session.episodes.filter((e) => e.type === "act").length];
  if (!c.turn.length) return html`<section class="panel"><div class="empty">No turn of this session is recorded.</div></section>`;
  return html`<section class="panel" aria-label="Tokens"><div class="ph"><h2>Tokens</h2><span class="dim wide">${zoom ? `turns ${range.from} to ${range.to}` : "drag below to zoom, click to see the view at a turn"}</span>
    ${zoom ? html`<button class="btn sm" onClick=${() => setZoom(null)}>All turns</button>` : null}<span class="grow"></span><${Seg} label="Scale" v=${scale} on=${setScale} o=${[["all", "Whole"], ["budget", "Up to the budget"]]}/></div>
    <div class="tl"><div class="ro"><${Readout} d=${d} i=${i}/><div class="lanes" aria-hidden="true">${lanes.map((l) => html`<div key=${l.name}><svg class="i" width="12" height="12"><${Shape} kind=${l.kind} x=${6} y=${7}/></svg> ${l.name}</div>`)}</div></div>
    <div ref=${ref}>${w ? html`<${Tokens} c=${c} named=${named} range=${range} lanes=${lanes} w=${w} narrow=${narrow} upToBudget=${scale === "budget"} turn=${turn}
      onTurn=${(/** @type {number | null} */ t, /** @type {number} */ x, /** @type {number} */ y) => setHover(t === null ? null : { turn: t, x, y })} onOpen=${(/** @type {number} */ t) => go(to(d.name, "view", { turn: t }))}/>
      <${Brush} c=${c} range=${range} set=${setZoom} w=${w} narrow=${narrow}/>` : html`<div style=${{ height: "404px" }}></div>`}</div>
    <${Ends} c=${c} named=${named} range=${range} upToBudget=${scale === "budget"}/></div>
    <${Facts} name="Tokens" head=${["Turn", "History", isWatched(d.session.row) ? "Would be sent" : "Sent", "Budget", "Floor", "Passes", "Hops", "Recalled"]} rows=${() => c.turn.flatMap((t, n) => (t < range.from || t > range.to ? [] : [[t, full(c.in[n]), full(c.out[n]), full(c.budget[n]), full(c.floor[n]), c.passes[n], c.hops[n]?.length ?? 0, full(c.recalled[n])]])).slice(-500)}/></section>
  <section class="panel" aria-label="Parts of the view"><div class="ph"><h2>${shown === last ? "Now" : "Then"}</h2><span class="dim">what turn ${shown} ${isWatched(d.session.row) ? "would have sent" : "sent"}, by part</span><span class="grow"></span><span><b>${full(c.out[i])}</b><span class="dim"> of ${full(c.budget[i])}</span></span></div>
    ${parts ? html`<${Now} parts=${parts} budget=${c.budget[i] ?? null} floor=${c.floor[i] ?? null} open=${openAt(d.session, shown)?.name ?? null}/>` : html`<div class="pb dim">${d.items || d.itemsError ? "The sizes of its items are not known." : "Reading the items"}</div>`}</section>
  <section class="panel" aria-label="Episodes"><div class="ph"><h2>Episodes</h2><span class="dim">${zoom ? `${episodes.length} of ` : ""}${d.session.episodes.length}: ${count(counts[0], "exploration")}, ${count(counts[1], "act")}</span><span class="grow"></span>
    <div class="legend wide" aria-hidden="true"><span><i class="sq" style=${{ background: "var(--expl)" }}></i>expl</span><span><i class="sq" style=${{ background: "var(--act)" }}></i>act</span><span>━ whole in view</span><span>◐ first eviction</span><span>┄ in part</span><span>○ removed</span></div></div>
    ${episodes.length && w ? html`<${Gantt} episodes=${episodes} passes=${lanes[0]?.turns ?? []} range=${range} last=${last} w=${w} narrow=${narrow} turn=${turn} sel=${sel} choose=${choose} plot=${plot}
      onHover=${(/** @type {Episode | null} */ e, /** @type {number} */ x, /** @type {number} */ y) => setOver(e ? { e, x, y } : null)}/>` : html`<div class="pb dim">${d.session.episodes.length ? "No episode in these turns." : "The model marked no work, and nothing was taken for an episode."}</div>`}
    ${chosen ? html`<${EpisodeBox} key=${chosen.name} d=${d} e=${chosen} off=${off}/>` : null}
    ${over && over.e.name !== sel ? html`<${Tip} x=${over.x} y=${over.y}><b>${over.e.name}</b><div class="r"><span>${over.e.end === null ? "open since turn" : "turns"}</span>${over.e.start}${over.e.end === null ? "" : `–${over.e.end}`}</div><div class="r"><span>items</span>${full(over.e.items)}</div>${over.e.finding ? html`<hr/>${over.e.finding}` : null}<//>` : null}
    <${Facts} name="Episodes" head=${["Episode", "Kind", "From", "To", "Tokens", "In view", "First evicted", "Removed", "Builds on"]} rows=${() => episodes.slice(-500).map((e) => [e.name, e.type, e.start, e.end ?? "open", full(e.tokens), full(e.now), known(e.first_evicted) ? e.first_evicted : "–", known(e.gone) ? e.gone : "–", e.deps.join(", ") || "–"])}/></section>
  ${d.items ? html`<${Tools} d=${d} turn=${shown}/>` : null}
  ${hover && hover.x !== undefined && i >= 0 ? html`<${TurnTip} d=${d} i=${i} x=${hover.x} y=${hover.y ?? 0}/>` : null}`;
}

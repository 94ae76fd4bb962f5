// Evictions: the passes of a session, and for one of them what moved, what stands in its place, whether it
// was needed later, and what stayed and why. Owns this view. Never judges what was needed: the server does.
import { html, useEffect, useMedia, useMemo, useNarrow, useRef, useState } from "./lib.js";
import { api } from "./api.js";
import { PinButton, RecallItem, RecallWords } from "./asks.js";
import { count, full, known, short, usd } from "./format.js";
import { at, markAt, mentions, openAt, partsAt, sizeAt } from "./history.js";
import { Failed, Waiting, useRead } from "./load.js";
import { Now } from "./now.js";
import { Copy, EpTag, Fig, FindItem, Move, NeedTag, NeedText, Seg, Term, isWatched } from "./parts.js";
import { go, note, route, to } from "./route.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").PassRow} PassRow */
/** @typedef {import("./shapes").Pass} Pass */
/** @typedef {Pass["moves"][number]} Moved */
/** @typedef {import("./shapes").Item} Item */

/** Why an episode stayed, in words. @type {Record<Pass["held"][number]["why"], string>} */
const WHY = {
  open: "it is open",
  needed: "open work depends on it",
  recent: "it is among the newest tokens",
  pinned: "it is pinned",
  kept: "a rule keeps it",
  floor: "the floor was reached first",
  protected: "it may never go",
};

/** Before, after and floor of a pass on one scale. @param {{ p: PassRow, most: number, budget: number | null }} props */
function Bullet({ p, most, budget }) {
  const x = (/** @type {number} */ v) => (100 * v) / most;
  return html`<svg width="100%" height="16" viewBox="0 0 100 16" preserveAspectRatio="none" aria-hidden="true">
    <rect x="0" y="4" width=${x(p.before)} height="8" fill="var(--histfill)" stroke="var(--line2)" vector-effect="non-scaling-stroke"/>
    <rect x="0" y="4" width=${x(p.after)} height="8" fill="var(--sent)"/>
    <path d=${`M${x(p.floor)} 0V16`} stroke="var(--floor)" stroke-width="1.5" stroke-dasharray="3 2" vector-effect="non-scaling-stroke"/>
    ${known(budget) ? html`<path d=${`M${x(budget)} 0V16`} stroke="var(--budget)" stroke-width="1.5" vector-effect="non-scaling-stroke"/>` : null}</svg>`;
}

/** @param {{ d: Data, off: boolean }} props */
export function Evictions({ d, off }) {
  const [find, setFind] = useState(() => route().query["find"] ?? "");
  const passes = useMemo(() => {
    if (!find || !d.items) return d.session.passes;
    const found = d.items.list.filter((i) => mentions(i, find));
    const turns = new Set(found.flatMap((i) => i.marks.map(([t]) => t)));
    return d.session.passes.filter((p) => turns.has(p.turn));
  }, [d.session.passes, d.items, find]);
  const [turn, setTurn] = useState(() => Number(route().query["pass"] ?? passes.at(-1)?.turn ?? 0));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const pass = passes.find((p) => p.turn === turn) ?? passes.at(-1);
  const budgets = d.turns.budget.filter(known);
  const budget = budgets.at(-1) ?? null;
  const most = Math.max(1, ...passes.map((p) => p.before), budget ?? 0) * 1.02;
  const freed = passes.reduce((a, p) => a + p.freed, 0);
  const told_ = find ? `${passes.length} of ${d.session.passes.length}` : `${passes.length}${freed ? ` · ${isWatched(d.session.row) ? "would free" : "freed"} ${short(freed)}` : ""}`;
  const choose = (/** @type {number} */ t) => { setTurn(t); note({ pass: t, item: null }); };
  useEffect(() => { list.current?.querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "nearest" }); }, [pass?.turn]);
  const keys = (/** @type {KeyboardEvent} */ e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    const next = step && pass ? passes[passes.indexOf(pass) + step] : undefined;
    if (!next) return;
    e.preventDefault();
    choose(next.turn);
    requestAnimationFrame(() => /** @type {HTMLElement | null} */ (list.current?.querySelector("[aria-pressed=true]"))?.focus());
  };
  if (!d.session.passes.length) return html`<section class="panel"><div class="empty"><h2>Nothing ${isWatched(d.session.row) ? "would have been" : "was"} evicted</h2>No pass ${isWatched(d.session.row) ? "was due" : "has run"}: the view is still under the budget${known(budget) ? ` of ${full(budget)}` : ""}.</div></section>`;
  return html`<div class="two ev"><section class="panel" aria-label="Passes"><div class="ph"><h2><${Term} t="pass">${isWatched(d.session.row) ? "Would-be passes" : "Passes"}<//></h2><span class="dim">${told_}</span><span class="grow"></span><${FindItem} find=${find} set=${(/** @type {string} */ text) => { setFind(text); note({ find: text || null }); }}/></div>
    ${passes.length ? null : html`<div class="pb dim">No pass moved an item that has this text. <a class="u" href=${to(d.name, "view", { find })}>Look for it in the view</a></div>`}
    <div class="plist" ref=${list} onKeyDown=${keys}>${passes.map((p) => html`<button key=${`${p.turn}.${p.hop}`} class="prow" aria-pressed=${p === pass} onClick=${() => choose(p.turn)}><span class="nw">turn ${p.turn}</span><span class="sr">${short(p.before)} to ${short(p.after)} tokens, ${count(p.items, "item")} moved, freed</span><${Bullet} p=${p} most=${most} budget=${budget}/>
      <span class=${`num${p.needed ? " warn" : ""}`}>−${short(p.freed)}</span></button>`)}</div></section>
    <div>${find ? html`<${FoundItems} d=${d} find=${find}/>` : null}${pass ? html`<${OnePass} key=${pass.turn} d=${d} p=${pass} find=${find} off=${off}/>` : null}</div></div>`;
}

/** How many found items are listed. */
const MOST_FOUND = 12;

/** The turn whose pass took most of an item: the newest of them, where its sizes are not known. @param {Item} i */
function turnOfMost(i) {
  let most = { turn: i.marks.at(-1)?.[0] ?? 0, taken: 0 };
  let before = i.tokens ?? 0;
  for (const [turn] of i.marks) {
    const after = sizeAt(i, turn) ?? before;
    if (before - after > most.taken) most = { turn, taken: before - after };
    before = after;
  }
  return most.turn;
}

/** The evicted items that have a text, those that were missed first. @param {{ d: Data, find: string }} props */
function FoundItems({ d, find }) {
  const found = useMemo(() => {
    const gone = (d.items?.list ?? []).filter((i) => i.marks.length && i.role !== "hidden" && mentions(i, find));
    const missed = (/** @type {Item} */ i) => Number(Boolean(i.needed && i.needed.how !== "in view"));
    return gone.sort((a, b) => missed(b) - missed(a) || (b.tokens ?? 0) - (a.tokens ?? 0));
  }, [d.items, find]);
  if (found.length < 2) return null;
  return html`<section class="panel" aria-label="Items found"><div class="ph"><h2>${count(found.length, "item")} evicted ${found.length === 1 ? "has" : "have"} this text</h2>${found.length > MOST_FOUND ? html`<span class="dim">the first ${MOST_FOUND}</span>` : null}</div>
    <div class="tw founds" tabindex="0" role="region" aria-label="Items found, in a table"><table><thead><tr><th scope="col">Item</th><th class="wide" scope="col">What</th><th class="num tok" scope="col">Tokens</th><th scope="col">When</th><th class="nd" scope="col">Needed later</th></tr></thead><tbody>
    ${found.slice(0, MOST_FOUND).map((i) => {
      const href = to(d.name, "evictions", { find, pass: turnOfMost(i), item: i.id });
      return html`<tr key=${i.no} class="lk" onClick=${() => go(href)}><td class="idm nw"><a href=${href} onClick=${(/** @type {Event} */ e) => e.stopPropagation()}>${i.id}</a></td><td class="wide"><div class="ell">${i.label ?? html`<span class="dim">withheld</span>`}</div></td><td class="num">${full(i.tokens)}</td>
        <td class="mid">${i.marks.map(([t, mark], nth) => `${nth ? ", " : ""}${mark} in turn ${t}`)}</td><td class="nw"><${NeedTag} n=${i.needed} told=${known(d.session.passes[0]?.needed)}/></td></tr>`;
    })}</tbody></table></div></section>`;
}

/** The price of a token that was read from nowhere: what the turn's rewrites cost. @param {Data} d @param {PassRow} p */
function rewriteCost(d, p) {
  const account = d.turns.account[at(d.turns, p.turn)];
  return account?.usd ? usd(account.usd.rewrites, 3) : account?.units ? `${short(account.units.rewrites)} units` : null;
}

/** @param {{ d: Data, p: PassRow, find: string, off: boolean }} props `find` leaves the items that have this text */
function OnePass({ d, p, find, off }) {
  const read = useRead((stop) => api.pass(d.name, p.turn, stop), [d.name, p.turn]);
  const [kind, setKind] = useState("all");
  const [open, setOpen] = useState(/** @type {string | null} */ (route().query["item"] ?? null));
  const moves = read.value?.moves ?? [];
  const needed = moves.filter((m) => m.needed && m.needed.how !== "in view");
  const kinds = [...new Set(moves.map((m) => m.to))];
  const found = find ? moves.filter((m) => mentions(m, find)) : moves;
  const of = (/** @type {string} */ k) => found.filter((m) => (k === "needed" ? needed.includes(m) : k === "all" || m.to === k));
  const list = of(kind);
  const told = known(p.needed);
  const held = moves.filter((m) => m.needed?.how === "in view").length;
  const cost = rewriteCost(d, p);
  const far = p.after > p.floor * 1.3;
  const i = at(d.turns, p.turn);
  const parts = useMemo(() => (d.items && i >= 0 ? partsAt(d.session, d.turns, d.items.list, p.turn) : null), [d.items, p.turn]);
  return html`<div><section class="panel" aria-label=${`Pass of turn ${p.turn}`}><div class="ph"><h2>${isWatched(d.session.row) ? "Would-be pass" : "Pass"} of turn ${p.turn}</h2><span class="dim">${{ budget: "the next request would have passed the budget", cold: "the provider’s cache was cold anyway", emergency: "the prompt was too long for the model", guidance: "guidance was added to the prologue", asked: "a person asked for it" }[p.trigger] ?? p.trigger}</span><span class="grow"></span>
    <a class="btn sm" href=${to(d.name, "view", { turn: p.turn })}>View at turn ${p.turn}</a><a class="btn sm" href=${to(d.name, "build", { before: p.turn })}>Fork from before turn ${p.turn}</a></div>
    <div class="figs four"><${Fig} l="View" v=${`${short(p.before)} → ${short(p.after)}`} s=${far ? html`<span class="warn">stopped ${short(p.after - p.floor)} above the floor</span>` : html`<${Term} t="floor">floor<//> ${short(p.floor)}`}/>
      <${Fig} l="Items moved" v=${full(p.items)} s=${kinds.map((k) => `${moves.filter((m) => m.to === k).length} ${k}`).join(", ") || "\u00a0"}/>
      <${Fig} l="Read anew" v=${short(p.reread)} s=${`the first ${short(p.cut)} stayed cached${cost ? `; ${cost}` : ""}`}/>
      <${Fig} l="Needed later" v=${full(p.needed)} u=${told ? `of ${moves.length || p.items}` : null} c=${p.needed ? "warn" : ""} s=${told ? [...new Set(needed.map((m) => m.needed?.how)), ...(held ? [`${held} in view`] : [])].join(", ") || "nothing was" : "can’t be told without content"}/></div></section>
  <section class="panel" aria-label="What moved"><div class="ph"><h2>What ${isWatched(d.session.row) ? "would have moved" : "moved"}</h2><span class="grow"></span>${moves.length ? html`<${Seg} label="Show" v=${kind} on=${setKind} o=${[["all", `All ${found.length}`], ...kinds.map((k) => [k, `${k} ${of(k).length}`]), ...(needed.length ? [["needed", `needed ${of("needed").length}`]] : [])]}/>` : null}</div>
    ${read.error ? html`<div class="pb"><${Failed} error=${read.error} again=${read.again}/></div>` : !read.value ? html`<${Waiting} what="the pass"/>` : moves.length ? html`<${Moves} d=${d} list=${list} open=${open} told=${told} off=${off} turn=${p.turn} setOpen=${(/** @type {string | null} */ id) => { setOpen(id); note({ item: id }); }}/>` : html`<div class="pb dim">Which items it moved was not recorded.</div>`}</section>
  <section class="panel" aria-label="What stayed, and why"><div class="ph"><h2>What stayed, and why</h2><span class="dim">${full(p.after)} tokens after the pass</span></div>
    ${parts ? html`<${Now} parts=${parts} budget=${d.turns.budget[i] ?? null} floor=${p.floor} open=${openAt(d.session, p.turn)?.name ?? null}/>` : null}
    ${read.value?.held.length ? html`<table><caption class="sr">What stayed, and why</caption><tbody>${read.value.held.map((h) => html`<tr key=${h.name}><td>${h.episode === null ? html`<span class="tag">${h.name}</span>` : html`<${EpTag} e=${d.session.episodes[h.episode]}/>`}</td><td class="num">${full(h.tokens)}</td><td class="mid">${WHY[h.why]}</td></tr>`)}</tbody></table>` : html`<div class="pb dim">No episode stayed.</div>`}</section></div>`;
}

/** @param {{ d: Data, list: Moved[], open: string | null, told: boolean, off: boolean, turn: number, setOpen: (id: string | null) => void }} props */
function Moves({ d, list, open, told, off, turn, setOpen }) {
  const narrow = useNarrow();
  const size = narrow ? short : full;
  const tight = useMedia("(max-width: 900px)");
  // Whoever came for one item sees it: it may stand below what the page begins with. What is opened here
  // stays where it was clicked.
  const table = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => { table.current?.querySelector("tr.sel")?.scrollIntoView({ block: "start" }); }, []);
  return html`<div class="tw moves" ref=${table} tabindex="0" role="region" aria-label="Items that moved"><table><thead><tr><th scope="col">Item</th><th class="wide" scope="col">What</th><th class="c3" scope="col"><${Term} t="episode">Episode<//></th><th class="mk" scope="col"><${Term} t="mark">Mark<//></th><th class="num tok" scope="col">Tokens</th><th class="c3" scope="col">In its place</th><th class="nd" scope="col"><${Term} t="needed">Needed later<//></th></tr></thead>
  <tbody>${list.map((m) => html`<tr key=${m.no} class=${`lk${open === m.id ? " sel" : ""}`} onClick=${() => setOpen(open === m.id ? null : m.id)}>
    <td class="idm nw"><button class="opener" title=${m.id} aria-expanded=${open === m.id}><span class="ell">${m.id}</span></button></td><td class="wide"><div class="ell">${m.label ?? html`<span class="dim">withheld</span>`}</div></td>
    <td class="c3 nw"><${EpTag} e=${m.episode === null ? null : d.session.episodes[m.episode]}/></td><td><${Move} a=${m.from} b=${m.to}/></td>
    <td class="num">${size(m.before)} <span class="dim">→</span> ${size(m.after)}</td>
    <td class="c3"><div class="ell stub">${m.to === "removed" ? html`<span class="dim">named in its episode’s line</span>` : (m.stub ?? html`<span class="dim">–</span>`)}</div></td><td class="nw"><${NeedTag} n=${m.needed} told=${told}/></td></tr>
    ${open === m.id ? html`<tr class="inner"><td colspan=${narrow ? 4 : tight ? 5 : 7}><${Opened} d=${d} m=${m} turn=${turn} off=${off}/></td></tr>` : null}`)}</tbody></table></div>`;
}

/** @param {{ d: Data, m: Moved, turn: number, off: boolean }} props */
function Opened({ d, m, turn, off }) {
  const read = useRead((stop) => api.item(d.name, m.id, turn, stop), [d.name, m.id, turn]);
  const item = read.value;
  const none = item?.content === "withheld" ? "Its text is withheld by console.content." : "Its text is neither in memory nor stored.";
  if (read.error) return html`<${Failed} error=${read.error} again=${read.again}/>`;
  const whole = d.items?.list.find((one) => one.no === m.no);
  const original = item?.original ?? null;
  return html`${whole && whole.marks.length > 1 ? html`<p class="cap">It came with ${full(whole.tokens)} tokens${whole.marks.map(([t, mark]) => html`, ${mark}${mark === "removed" ? "" : ` to ${full(sizeAt(whole, t))}`} in <a class="u" href=${to(d.name, "evictions", { pass: t, item: m.id })}>turn ${t}</a>`)}.</p>` : null}
    <div class="two half"><div><div class="sub cap">original</div><pre class="code" tabindex="0">${original ?? (item ? none : "…")}</pre></div>
    <div><div class="sub cap">in its place, ${full(m.after)} tokens</div><pre class="code" tabindex="0">${m.to === "removed" ? "(removed)" : (item?.shown ?? m.stub ?? none)}</pre></div></div>
    <p class="cap">${item ? html`<b>Why:</b> ${item.reason}` : ""}${m.needed ? html` <${NeedText} n=${m.needed}/>` : null}</p>
    <div class="acts"><${Copy} text=${original ?? ""} disabled=${original === null}>Copy original<//>
      ${whole && whole.role !== "hidden" && markAt(whole, d.session.row.turn) !== "live" ? html`<${RecallItem} d=${d} off=${off} id=${m.id}/>` : null}<${RecallWords} id=${m.id}/><${PinButton} d=${d} off=${off} id=${m.id} pinned=${d.session.pins.includes(m.id)}/>
      <button class="btn sm" onClick=${() => go(to(d.name, "view", { turn, item: m.no }))}>Open the view at turn ${turn}</button>
      <a class="btn sm" href=${to(d.name, "build", { before: turn })}>Fork from before turn ${turn}</a></div>`;
}

// View at a turn: what the agent sent beside what the model was sent, item by item. Owns which turn and
// which item are looked at, and the keys that move between them. Never guesses a reason: the server says it.
import { html, useEffect, useKeys, useMemo, useNarrow, useState } from "./lib.js";
import { full, known, short } from "./format.js";
import { at, inView, isRecall, markAt, mentions, scaleAt, sentAt, sizeAt } from "./history.js";
import { ItemPanel } from "./item.js";
import { Failed, Waiting } from "./load.js";
import { Ball, EpTag, FindItem, Icon, Seg, isWatched } from "./parts.js";
import { note, route, to } from "./route.js";
import { useRows } from "./rows.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Item} Item */
/**
 * @typedef {{ kind: "item", item: Item } | { kind: "run", gone: boolean, items: Item[] } | { kind: "prologue" }} Line
 */

const ROW = 30;
/** A run of so few items is shown as it is. */
const FEW = 3;

/** What stands at the head of both sides: the server's word of the view, and the rest of what the agent sent. @param {Data} d @param {Item[]} items @param {number} turn */
function prologue(d, items, turn) {
  const i = at(d.turns, turn);
  let sent = 0;
  for (const item of items) if (item.role !== "system" && sentAt(item, turn)) sent += item.tokens ?? 0;
  const history = d.turns.in[i];
  const own = known(history) ? Math.max(0, history - sent * scaleAt(d.turns, items, turn)) : null;
  return { sent: own, shown: d.turns.prologue[i] ?? null };
}

/**
 * The lines of the view: items, and runs of items that are all gone or all the same.
 * @param {Item[]} items @param {number} turn @param {string} mode @param {Set<number>} open numbers of opened runs
 * @param {string} find shows the items alone that have this text
 * @returns {Line[]}
 */
function linesOf(items, turn, mode, open, find) {
  if (find) {
    return items.filter((i) => (sentAt(i, turn) || inView(i, turn)) && mentions(i, find)).map((item) => ({ kind: "item", item }));
  }
  /** @type {Line[]} */
  const out = [{ kind: "prologue" }];
  /** @type {Item[]} */
  let run = [];
  let gone = false;
  const flush = () => {
    const first = run[0];
    if (!first) return;
    if (run.length >= FEW) out.push({ kind: "run", gone, items: run });
    if (run.length < FEW || open.has(first.no)) out.push(...run.map((item) => /** @type {Line} */ ({ kind: "item", item })));
    run = [];
  };
  for (const item of items) {
    const sent = sentAt(item, turn);
    const shown = inView(item, turn);
    // System text is part of the prologue.
    if ((!sent && !shown) || item.role === "system") continue;
    const left = sent && !shown;
    const same = sent && shown && markAt(item, turn) === "live" && item.role !== "user";
    const folds = mode === "all" ? false : left || (same && mode === "diff");
    if (!folds || (run.length && gone !== left)) flush();
    if (folds) {
      gone = left;
      run.push(item);
    } else out.push({ kind: "item", item });
  }
  flush();
  return out;
}

/** @param {{ item: Item }} props */
const Who = ({ item }) =>
  item.role === "user" ? html`<span class="tag user">user</span>` : item.role === "assistant" ? html`<span class="tag">said</span>`
    : item.role === "system" ? html`<span class="tag">system</span>` : html`<span class="idm">${item.id}</span>`;

/** @param {{ item: Item, turn: number, on: boolean, choose: () => void }} props */
function ItemLine({ item, turn, on, choose }) {
  const sent = sentAt(item, turn);
  const shown = inView(item, turn);
  const mark = markAt(item, turn);
  const size = sizeAt(item, turn);
  const removed = item.marks.find(([, m]) => m === "removed")?.[0];
  const right = !shown ? html`<span class="dim">removed${removed ? ` · turn ${removed}` : ""}</span>`
    : !sent ? html`<span class=${`tag ${isRecall(item) ? "rec" : "kept"}`}>${item.id}</span> <span class="stub">${item.label ?? ""}</span>`
      : mark === "live" ? html`<span class="mid">${item.label ?? item.id}</span>` : html`<span class="stub">[${mark} ${item.id}]</span>`;
  return html`<button class=${`vrow${on ? " sel" : ""}`} aria-pressed=${on} onClick=${choose}>
    <span class="ell">${sent ? html`<${Who} item=${item}/> <span class=${shown ? "" : "dim"}>${item.label ?? ""}</span>` : html`<span class="sr">not from the agent</span>`}${item.pinned ? html` <${Icon} n="pin" s=${11}/>` : null}</span>
    <span class="tk mid">${sent ? full(item.tokens) : ""}</span><span class="c">${sent ? html`<${Ball} m=${shown ? mark : "removed"}/>` : html`<span class="plus" title="added by Plimsoll">+</span>`}</span>
    <span class="ell">${right}</span><span class=${`tk${shown ? "" : " dim"}`}>${shown ? full(size) : 0}</span></button>`;
}

/** @param {{ d: Data, run: { gone: boolean, items: Item[] }, open: boolean, toggle: () => void }} props */
function RunLine({ d, run, open, toggle }) {
  const sum = run.items.reduce((a, i) => a + (i.tokens ?? 0), 0);
  const episodes = [...new Set(run.items.flatMap((i) => (i.episode === null ? [] : [i.episode])))];
  return html`<button class="vrow gap" aria-expanded=${open} onClick=${toggle}>
    <span class="ell"><${Icon} n=${open ? "down" : "right"} s=${11}/> ${run.items.length} items ${run.gone ? html`<span class="wide-inline">${episodes.slice(0, 3).map((e) => html` <${EpTag} e=${d.session.episodes[e]}/>`)}${episodes.length > 3 ? ` +${episodes.length - 3}` : ""}</span>` : html`<span class="dim">${run.items[0]?.id} … ${run.items.at(-1)?.id}</span>`}</span>
    <span class="tk">${full(sum)}</span><span class="c"><${Ball} m=${run.gone ? "removed" : "live"}/></span><span>${run.gone ? "removed" : "the same"}</span><span class="tk">${run.gone ? 0 : full(sum)}</span></button>`;
}

/** @param {{ turn: number, first: number, last: number, passes: number[], set: (t: number) => void }} props */
function Slider({ turn, first, last, passes, set }) {
  const span = Math.max(1, last - first);
  return html`<div class="slider"><svg width="100%" height="8" viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true">${passes.map((t) => html`<path d=${`M${8 + (984 * (t - first)) / span} 0v8`} stroke="var(--ink3)" stroke-width="2" vector-effect="non-scaling-stroke"/>`)}</svg>
    <input type="range" min=${first} max=${last} value=${turn} aria-label="Turn" onInput=${(/** @type {any} */ e) => set(Number(e.target.value))}/></div>`;
}

/** @param {{ d: Data, off: boolean }} props */
export function View({ d, off }) {
  const narrow = useNarrow();
  const first = d.turns.turn[0] ?? 1;
  const last = d.turns.turn.at(-1) ?? 1;
  const [asked, setAsked] = useState(() => Number(route().query["turn"] ?? 0));
  // A view of the newest turn follows the session.
  const turn = asked ? Math.max(first, Math.min(last, asked)) : last;
  const [mode, setMode] = useState("diff");
  const [sel, setSel] = useState(/** @type {number | null} */ (route().query["item"] === undefined ? null : Number(route().query["item"])));
  const [open, setOpen] = useState(/** @type {Set<number>} */ (new Set()));
  const [find, setFind] = useState(() => route().query["find"] ?? "");
  const passes = useMemo(() => [...new Set(d.session.passes.map((p) => p.turn))], [d.session.passes]);
  const set = (/** @type {number} */ t) => {
    const next = Math.max(first, Math.min(last, t));
    setAsked(next === last ? 0 : next);
    note({ turn: next });
  };
  const before = () => set(passes.findLast((t) => t < turn) ?? first);
  const after = () => set(passes.find((t) => t > turn) ?? last);
  const choose = (/** @type {number | null} */ no) => { setSel(no); note({ item: no }); };
  useKeys((e) => {
    if (e.key === "[") before();
    else if (e.key === "]") after();
    else if (e.key === "Escape") choose(null);
    else if (e.key === "ArrowLeft" && !(e.target instanceof HTMLInputElement)) set(turn - 1);
    else if (e.key === "ArrowRight" && !(e.target instanceof HTMLInputElement)) set(turn + 1);
  });
  const i = at(d.turns, turn);
  const items = d.items?.list;
  const head = useMemo(() => (items ? prologue(d, items, turn) : null), [items, turn, d.turns]);
  const lines = useMemo(() => (items ? linesOf(items, turn, mode, open, find) : []), [items, turn, mode, open, find]);
  const rows = useRows(lines.length, ROW);
  const item = items?.find((one) => one.no === sel) ?? null;
  useEffect(() => {
    // What is asked for by an address is brought to the screen, out of its run if need be.
    if (sel === null || !items) return;
    const run = lines.find((l) => l.kind === "run" && l.items.some((one) => one.no === sel));
    if (run?.kind === "run" && run.items[0] && !open.has(run.items[0].no)) setOpen(new Set([...open, run.items[0].no]));
  }, [sel, Boolean(items), turn]);
  const toggle = (/** @type {number} */ no) => {
    const next = new Set(open);
    if (!next.delete(no)) next.add(no);
    setOpen(next);
  };
  const write = narrow ? short : full;
  return html`<div class="panel pb line turnbar"><span class="nw"><b class="big">Turn ${turn}</b> <span class="dim">of ${last}</span></span><${Slider} turn=${turn} first=${first} last=${last} passes=${passes} set=${set}/>
    <button class="btn sm" onClick=${before}>‹ pass <span class="kbd wide">[</span></button><button class="btn sm" onClick=${after}>pass › <span class="kbd wide">]</span></button>
    <label class="search gototurn"><span class="dim">Go to turn</span><input type="number" min=${first} max=${last} onChange=${(/** @type {any} */ e) => { if (e.target.value) set(Number(e.target.value)); e.target.value = ""; }}/></label>
    <${FindItem} find=${find} set=${setFind}/>
    <${Seg} label="Show" v=${mode} on=${setMode} o=${[["diff", "Differences"], ["view", "In view"], ["all", "All"]]}/>
    <a class="btn sm" href=${to(d.name, "build", { before: turn })}>Fork from before turn ${turn}</a></div>
  <div class=${`two${item ? " side" : ""}`}><section class="panel" aria-label=${`View at turn ${turn}`}>
    <div class="vrow vh"><span class="nw">${narrow ? "From the agent" : "What the agent sent"}</span><span class="tk">${write(d.turns.in[i])}</span><span class="c"></span><span class="nw">${isWatched(d.session.row) ? (narrow ? "Would be sent" : "What the model would have been sent") : narrow ? "To the model" : "What the model was sent"}</span><span class="tk">${write(d.turns.out[i] ?? d.turns.hops[i]?.at(-1)?.[0])}</span></div>
    ${d.itemsError ? html`<div class="pb"><${Failed} error=${d.itemsError} again=${d.again}/></div>` : !items ? html`<${Waiting} what="the items"/>` : html`<div ref=${rows.ref}><div style=${{ height: `${rows.above}px` }}></div>
      ${lines.slice(rows.first, rows.last).map((l) => (l.kind === "prologue" ? html`<div class="vrow" key="p"><span class="ell"><span class="tag">prologue</span> system, tools, framing</span><span class="tk mid">${write(head?.sent)}</span><span class="c"><span class="plus">+</span></span><span class="ell"><span class="tag kept">+ delimiter, recall, guidance</span></span><span class="tk">${write(head?.shown)}</span></div>`
        : l.kind === "run" ? html`<${RunLine} key=${`r${l.items[0]?.no}`} d=${d} run=${l} open=${open.has(l.items[0]?.no ?? -1)} toggle=${() => toggle(l.items[0]?.no ?? -1)}/>`
          : html`<${ItemLine} key=${l.item.no} item=${l.item} turn=${turn} on=${sel === l.item.no} choose=${() => choose(sel === l.item.no ? null : l.item.no)}/>`))}
      <div style=${{ height: `${rows.below}px` }}></div>${find && !lines.length ? html`<div class="pb dim">No item of turn ${turn} has this text.</div>` : !items.length ? html`<div class="pb dim">No item of this session is known.</div>` : null}</div>`}</section>
    ${item ? html`<${ItemPanel} key=${`${item.no}.${turn}`} d=${d} item=${item} turn=${turn} off=${off} close=${() => choose(null)}/>` : null}</div>`;
}

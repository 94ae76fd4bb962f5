// The overview: whether it pays, whether the budget is held, what needs a person; and the list of sessions.
// Owns the figures over all sessions and the table. Never reads a session's turns.
import { html, useCallback, useEffect, useMemo, useNarrow, useRef, useState } from "./lib.js";
import { api, nameOf } from "./api.js";
import { age, count, cut, full, known, pct, sense, share, short, signed, time, usd } from "./format.js";
import { FailedFig } from "./failures.js";
import { nested, useListing } from "./listing.js";
import { useEvents } from "./live.js";
import { Failed, Waiting, useRead, useSoon } from "./load.js";
import { Chip, Copy, Fig, Gauge, Glyph, Icon, Spark, Term, Waterfall, isWatched, net, netOf, sizeOf } from "./parts.js";
import { go, to } from "./route.js";
import { scrollToRow, useRows } from "./rows.js";
import { Spend } from "./spend.js";

/** @typedef {import("./shapes").Overview} Totals */
/** @typedef {import("./shapes").SessionRow} Row */
/** @typedef {{ row: Row, depth: number, children: number }} Placed */

/** A session's name where no title may be shown. @param {Row} row */
export const titleOf = (row) => row.title ?? `session ${row.session.slice(0, 8)}`;

/** @param {{ all: Totals }} props */
function Figures({ all }) {
  const { observed } = all;
  const would = observed.sessions ? net(observed.projected) : null;
  // Where nothing was managed, what managing would have come to is all that there is.
  const only = would !== null && !all.saved.turns;
  const saved = only ? would : net(all.saved);
  const fails = Object.entries(all.process.fail_open);
  const unmanaged = Object.entries(all.process.unmanaged);
  const { late, failed } = all.process.unrecorded;
  const sum = (/** @type {[string, number][]} */ rows) => rows.reduce((a, [, n]) => a + n, 0);
  const names = (/** @type {[string, number][]} */ rows) => rows.map(([name, n]) => `${name.replaceAll("_", " ")} ${n}`).join(", ");
  const { own_ms: own, beside } = all.process;
  return html`<div class="figs over">
    <div class="fig all saved"><div><div class="lb">${only ? "Would have saved, net" : "Saved, net"}</div>
      <div class=${`v ${saved ? sense(saved.money.net) : ""}`}>${saved ? saved.text : "–"}${saved ? html`<small>${saved.share}</small>` : null}</div>
      <div class="s">${only ? html`nothing was managed; ${count(observed.turns, "turn")} of ${count(observed.sessions, "session")} only observed, ` : null}${saved ? html`of ${saved.dollars ? signed(saved.money.whole).replace("+", "") : `${short(saved.money.whole)} units`} sent whole` : "no price is known, or nothing is recorded"}${would && !only ? html`<br/>would have saved ${signed(would.money.net)} of ${usd(would.money.whole)} in ${count(observed.sessions, "observed session")}` : null}${all.unpriced ? html`<br/>${count(all.unpriced, "session")} without a price` : null}</div></div>
      ${saved ? html`<div class="bars"><${Waterfall} m=${saved.money} money=${saved.dollars}/></div>` : null}</div>
    <${Fig} l="Cached share" v=${pct(share(all.cached, all.prompt))} s=${all.whole_prompt ? `${pct(share(all.whole_cached, all.whole_prompt))} were all sent whole` : "nothing reported yet"}/>
    <${Fig} l="Over budget" v=${full(all.over)} u=${`of ${count(all.turns, "turn")}`} c=${all.over ? "bad" : ""}
      s=${all.over_sessions ? `in ${count(all.over_sessions, "session")}, ${all.over_now} of them now` : observed.sessions ? "every managed request was under the budget" : "every request was under the budget"}/>
    <${FailedFig} process=${all.process}/>
    <${Fig} l="Failed open" v=${full(sum(fails))} c=${fails.length ? "warn" : ""} s=${fails.length ? names(fails) : `of ${count(all.process.turns, "request")} since the start`}/>
    <${Fig} l="Unmanaged" v=${full(sum(unmanaged))} s=${unmanaged.length ? names(unmanaged) : "every request could be managed"}/>
    <div class="fig all"><div class="lb">${all.upstreams.length > 1 ? "Upstreams" : "Upstream"}</div>
      ${all.upstreams.map((u) => html`<div key=${u.name}><div class="row upname"><span class=${`dot${u.healthy === null ? " off" : u.healthy ? "" : " bad"}`}></span><span class="ell">${u.name}</span>${u.healthy === null ? null : u.healthy ? html`<span class="sr">answers</span>` : html`<span class="tag bad">fails</span>`}</div>
        <div class="s">${u.healthy === null ? "no request since the start" : `${count(u.requests, "request")}, ${count(u.errors, "error")}`}</div></div>`)}
      <div class="s">${known(own.p50) ? html`<${Term} t="own">own time<//> a turn p50 ${time(own.p50)}, p99 ${time(own.p99)}` : ""}</div>
      ${beside.turns ? html`<div class="s" title="Requests without a record, such as titles and what was forwarded as it came; they stand in no session">${count(beside.turns, "request")} beside sessions${beside.account?.usd ? `, ${usd(beside.account.usd.paid)}` : ""}</div>` : null}
      ${late ? html`<div class="s">${count(late, "record")} written late, nothing lost</div>` : null}
      ${failed ? html`<div class="s warn">${count(failed, "record")} not written</div>` : null}</div></div>`;
}

/** About how many turns a session has to its next pass. @param {Row} row */
function toPass(row) {
  const { turns_to_pass: turns } = row;
  if (turns === null) return html`<span class="dim">–</span>`;
  if (isWatched(row)) return html`<span class="dim">would: ~${full(turns)}</span>`;
  return turns === 0 ? "next turn" : `~${count(turns, "turn")}`;
}

/** What a row says beyond its figures. @param {{ row: Row }} props */
const Notes = ({ row }) => html`${row.branch ? html` <span class="tag" title="It went on from where the session had gone on before; its sums are those of its own turns">branch</span>` : null}${isWatched(row) ? html` <span class="tag" title="Sent as it came; its figures are what managing would have come to">only observed</span>` : null}
  ${row.over ? html` <span class="tag bad">over budget ${row.over}</span>` : null}`;

/** @param {{ row: Row }} props */
function Ended({ row }) {
  const text = age(row.ended / 1000);
  return text === "now" ? html`<span class="pill live"><span class="dot"></span>now</span>` : html`${text}`;
}

/** The item that has the text, where nothing else of the session has it. @param {{ row: Row }} props */
const FoundItem = ({ row }) => (row.item ? html`<div class="sub ell">has <span class="mono" title=${row.item}>${row.item}</span></div>` : null);

/** @param {{ p: Placed, at: number, q: string, folded: boolean, fold: () => void }} props */
function TableRow({ p: { row, depth, children }, at, q, folded, fold }) {
  const saved = netOf(row);
  const watched = isWatched(row);
  const size = sizeOf(row);
  const would = (/** @type {number | null} */ n) => (n ? (watched ? html`<span class="dim">would: ${n}</span>` : n) : dash);
  // What was searched for goes along, where it is an item.
  const here = row.item ? to(nameOf(row), "evictions", { find: q }) : to(nameOf(row));
  const dash = html`<span class="dim">–</span>`;
  return html`<tr class="lk" aria-rowindex=${at + 2} onClick=${() => go(here)}>
    <td><div class="ttlbox" style=${{ paddingLeft: `${depth * 24}px` }}>
      ${depth ? html`<svg class="i elbow" width="14" height="22" aria-hidden="true"><path d="M3.5 0V16.5H12" fill="none" stroke="var(--line2)"/></svg>`
        : children ? html`<button class="btn ghost fold" aria-label=${`sub-agents and branches of ${titleOf(row)}`} aria-expanded=${!folded}
          onClick=${(/** @type {Event} */ e) => { e.stopPropagation(); fold(); }}><${Icon} n=${folded ? "right" : "down"} s=${12}/></button>` : html`<span class="nofold"></span>`}
      <div class="grow"><div class="ell strong"><a class="rowlink" href=${here} onClick=${(/** @type {Event} */ e) => e.stopPropagation()}>${titleOf(row)}</a></div>
        <div class="sub ell"><span class="mono">${row.session.slice(0, 8)}</span> · ${cut(row.model)} · ${row.tenant.slice(0, 6)}${row.parent && !depth ? html` · ${row.branch ? "branch" : "sub-agent"} of <span class="mono">${row.parent.slice(0, 8)}</span>` : null}<${Notes} row=${row}/></div><${FoundItem} row=${row}/></div></div></td>
    <td><div class="gaugebox"><${Gauge} v=${size} budget=${row.budget} floor=${row.floor}/>
      <span class=${`nw${known(row.budget) && size > row.budget ? " bad" : ""}`}>${short(size)}<span class="dim"> / ${short(row.budget)}</span>${watched ? html`<div class="sub">would be ${short(row.out)}</div>` : null}</span></div></td>
    <td class="num c2" title="About how many turns until the view reaches the budget, if it goes on as in its last turns">${toPass(row)}</td>
    <td class="c2"><${Spark} d=${row.spark} budget=${row.budget}/></td>
    <td class="num">${full(row.turn)}</td><td class="num c3">${would(row.passes)}</td><td class="num c2">${would(row.hops)}</td><td class="num c2">${would(row.recalls)}</td>
    <td class="num c3">${pct(share(row.cached, row.prompt))}</td>
    <td class="num">${saved ? html`<span class=${watched ? "dim" : sense(saved.money.net)}>${watched ? "would: " : ""}${saved.dollars ? signed(saved.money.net) : saved.text}</span><div class="sub">${saved.share}</div>` : dash}</td>
    <td class="found c1">${row.finding ? html`<div class="ell sub findep">${row.finding.episode}</div><div class="ell sub" title=${row.finding.text}>${row.finding.text}</div>` : html`<span class="dim">–</span>`}</td>
    <td class="num dim"><${Ended} row=${row}/></td></tr>`;
}

/** @param {{ p: Placed }} props */
function Card({ p: { row, depth } }) {
  const saved = netOf(row);
  const watched = isWatched(row);
  const size = sizeOf(row);
  return html`<li class="card" style=${{ paddingLeft: `${12 + depth * 16}px` }}><a class="rowlink" href=${to(nameOf(row))}>
    <span class="cardtop"><span class="ell strong grow">${titleOf(row)}</span>${saved ? html`<span class=${`nw ${watched ? "dim" : sense(saved.money.net)}`}>${watched ? "would: " : ""}${saved.dollars ? signed(saved.money.net) : saved.text}</span>` : html`<span class="dim">–</span>`}</span>
    <span class="sub cardsub"><${Gauge} v=${size} budget=${row.budget} floor=${row.floor} w=${84}/>
      <span class=${known(row.budget) && size > row.budget ? "bad" : ""}>${short(size)} / ${short(row.budget)}</span>
      <span>turn ${row.turn}</span><span>${watched ? "would: " : ""}${count(row.passes, "pass", "passes")}</span><span class="end">${age(row.ended / 1000)}</span></span></a></li>`;
}

/** The heads that sort, and what they ask for. @type {[string, string, string][]} */
const HEADS = [
  ["View against the budget", "fill", ""], ["Next pass", "next", "num c2"], ["Sent, by turn", "", "c2"], ["Turn", "turn", "num"], ["Passes", "passes", "num c3"], ["Hops", "", "num c2"],
  ["Recalls", "", "num c2"], ["Cached", "cached", "num c3"], ["Saved, net", "saved", "num"], ["Last finding", "", "c1"], ["Last turn", "last", "num"],
];

/** @param {{ id: string, name: string, sort: string, set: (s: string) => void, c?: string }} props */
function Head({ id, name, sort, set, c = "" }) {
  if (!id) return html`<th scope="col" class=${c}>${name}</th>`;
  const on = sort.replace("-", "") === id;
  const up = sort.startsWith("-");
  return html`<th scope="col" class=${c} aria-sort=${on ? (up ? "ascending" : "descending") : "none"}>
    <button onClick=${() => set(on && !up ? `-${id}` : id)}>${name}${on ? html`<span aria-hidden="true">${up ? " ↑" : " ↓"}</span>` : null}</button></th>`;
}

/** @param {{ agents: string | undefined }} props */
function NoSession({ agents }) {
  const line = `export OPENAI_BASE_URL=${agents ?? "http://127.0.0.1:8787"}/v1`;
  const other = `export ANTHROPIC_BASE_URL=${agents ?? "http://127.0.0.1:8787"}`;
  return html`<div class="empty"><div class="glyph"><${Glyph} s=${30}/></div><h2>No session yet</h2>
    <p>Point an agent here; its first turn shows up by itself.</p>
    <pre class="code" tabindex="0">${`${line}\n${other}`}</pre><${Copy} text=${`${line}\n${other}`}>Copy both<//></div>`;
}

/** @param {{ server: (s: import("./shapes").Server) => void }} props */
export function Overview({ server }) {
  const all = useRead(api.overview, []);
  const soon = useSoon(all.again, 500);
  useEvents((event) => {
    if (event.kind === "turn" || event.kind === "upstream" || event.kind === "failed") soon();
  }, [soon]);
  useEffect(() => {
    if (all.value) server(all.value.server);
  }, [all.value]);
  return html`<main id="main" tabindex="-1"><h1 class="sr">Overview</h1>
    ${all.error ? html`<${Failed} error=${all.error} again=${all.again}/>` : null}
    ${all.value ? html`<${Figures} all=${all.value}/>` : all.error ? null : html`<div class="figs over wait">${["Saved, net", "Cached share", "Over budget", "Failed", "Failed open", "Unmanaged", "Upstream"].map((l, i) => html`<${Fig} l=${l} v=${html`<span class="skel"></span>`} s=${"\u00a0"} all=${i === 0 || i === 3 || i === 6}/>`)}</div>`}
    <${Spend}/>
    <${Sessions} all=${all.value}/></main>`;
}

/** Goes on with a search where it stopped. @param {{ older: string, go: (older: string) => Promise<void> }} props */
function SearchOlder({ older, go }) {
  const [busy, set] = useState(false);
  return html`<button class="btn sm" disabled=${busy} onClick=${() => { set(true); go(older).finally(() => set(false)); }}>Search older</button>`;
}

/** @param {{ all: Totals | null }} props */
function Sessions({ all }) {
  const narrow = useNarrow();
  const [typed, type] = useState("");
  const [q, ask] = useState("");
  const [asked, set] = useState(/** @type {Record<string, string>} */ ({}));
  const [sort, setSort] = useState("last");
  const [folded, fold] = useState(/** @type {Set<string>} */ (new Set()));
  const find = useSoon(() => ask(typed.trim()), 150);
  const query = useMemo(() => ({ ...asked, sort, ...(q ? { q } : {}) }), [asked, sort, q]);
  const list = useListing(query);
  const placed = useMemo(() => nested(list.rows, folded), [list.rows, folded]);
  const hidden = list.rows.length - placed.length;
  const total = Math.max(placed.length, (list.total ?? 0) - hidden);
  const height = narrow ? 58 : 46;
  const rows = useRows(total, height);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => list.need(rows.last + hidden + 1), [rows.last, hidden, list.rows.length]);
  const choose = (/** @type {string} */ name, /** @type {string} */ value) => {
    const next = { ...asked };
    if (value) next[name] = value;
    else delete next[name];
    set(next);
  };
  const toggle = useCallback((/** @type {string} */ name) => fold((had) => {
    const next = new Set(had);
    if (!next.delete(name)) next.add(name);
    return next;
  }), []);
  const arrows = (/** @type {KeyboardEvent} */ e) => moveFocus(e, rows.ref.current, height);
  const seen = placed.slice(rows.first, rows.last);
  const unread = Math.max(0, Math.min(rows.last, total) - Math.max(rows.first, placed.length));
  const filtered = Boolean(q) || Object.keys(asked).length > 0;
  const kinds = (/** @type {"model" | "tenant"} */ k) => [...new Set([...list.rows.map((r) => r[k]), ...(asked[k] ? [asked[k]] : [])])].sort();
  return html`<section class="panel" aria-label="Sessions"><div class="filters">
    <label class="search"><span class="dim"><${Icon} n="search"/></span><span class="sr">Find a session</span>
      <input id="find" ref=${field} placeholder="Find a title, finding, path, id, model" value=${typed} onInput=${(/** @type {any} */ e) => { type(e.target.value); find(); }} onKeyDown=${arrows}/><span class="kbd wide">/</span></label>
    <${Chip} on=${asked["zone"] === "over"} set=${(/** @type {boolean} */ on) => choose("zone", on ? "over" : "")} n=${all?.over_sessions}>over budget<//>
    <${Chip} on=${asked["loss"] === "1"} set=${(/** @type {boolean} */ on) => choose("loss", on ? "1" : "")}>costs more<//>
    <${Chip} on=${asked["unmanaged"] === "1"} set=${(/** @type {boolean} */ on) => choose("unmanaged", on ? "1" : "")}>only observed<//>
    <select class="chip" aria-label="Zone" value=${asked["zone"] ?? ""} onChange=${(/** @type {any} */ e) => choose("zone", e.target.value)}><option value="">any zone</option>${["green", "yellow", "red", "over"].map((z) => html`<option value=${z}>${z === "over" ? "over budget" : z}</option>`)}</select>
    <select class="chip" aria-label="Model" value=${asked["model"] ?? ""} onChange=${(/** @type {any} */ e) => choose("model", e.target.value)}><option value="">any model</option>${kinds("model").map((m) => html`<option value=${m}>${cut(m)}</option>`)}</select>
    <select class="chip" aria-label="Tenant" value=${asked["tenant"] ?? ""} onChange=${(/** @type {any} */ e) => choose("tenant", e.target.value)}><option value="">any tenant</option>${kinds("tenant").map((t) => html`<option value=${t}>${t.slice(0, 8)}</option>`)}</select>
    <span class="grow"></span><span class="dim" role="status">${list.total === null ? "" : count(list.total, "session")}${list.unsearched ? html` · texts of ${full(list.unsearched)} not searched` : null}</span>${list.older ? html`<${SearchOlder} go=${list.goOn} older=${list.older}/>` : null}</div>
    ${list.error ? html`<div class="pb"><${Failed} error=${list.error} again=${list.again}/></div>` : null}
    ${list.total === null ? (list.error ? null : html`<${Waiting} rows=${8} what="the list of sessions"/>`)
      : total === 0 ? (filtered ? html`<div class="empty">No session fits. <button class="btn sm" onClick=${() => { type(""); ask(""); set({}); }}>Show all</button></div>` : html`<${NoSession} agents=${all?.server.agents}/>`)
      : narrow ? html`<ul class="cards" ref=${rows.ref} onKeyDown=${arrows}><li style=${{ height: `${rows.above}px` }} aria-hidden="true"></li>${seen.map((p) => html`<${Card} key=${nameOf(p.row)} p=${p}/>`)}<li style=${{ height: `${rows.below + unread * height}px` }} aria-hidden="true"></li></ul>`
      : html`<table class="ovt" aria-rowcount=${total + 1}><caption class="sr">Sessions</caption><thead><tr><${Head} id="" name="Session" sort=${sort} set=${setSort}/>${HEADS.map(([name, id, c]) => html`<${Head} key=${name} id=${id} name=${name} sort=${sort} set=${setSort} c=${c}/>`)}</tr></thead>
        <tbody ref=${rows.ref} onKeyDown=${arrows}>${rows.above ? html`<tr aria-hidden="true" class="gap"><td style=${{ height: `${rows.above}px` }}></td></tr>` : null}
        ${seen.map((p, i) => html`<${TableRow} key=${nameOf(p.row)} p=${p} at=${rows.first + i} q=${q} folded=${folded.has(p.row.session)} fold=${() => toggle(p.row.session)}/>`)}
        ${Array.from({ length: unread }, (_, i) => html`<tr key=${`u${i}`} class="unread"><td colspan="5"><span class="skel"></span></td></tr>`)}
        ${rows.below ? html`<tr aria-hidden="true" class="gap"><td style=${{ height: `${rows.below}px` }}></td></tr>` : null}</tbody></table>`}</section>`;
}

/** Up and down go from row to row, and from the field to the first. @param {KeyboardEvent} event @param {Element | null} body @param {number} height */
function moveFocus(event, body, height) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !body) return;
  const links = /** @type {HTMLElement[]} */ ([...body.querySelectorAll(".rowlink")]);
  const at = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const next = links[at + step];
  event.preventDefault();
  if (next) {
    next.focus({ preventScroll: true });
    scrollToRow(next.closest("tr, li"), 0, height, 90);
  } else if (step < 0) document.getElementById("find")?.focus();
}

// A session's frame: its title, its figures, the tabs, what waits and what is pinned, and the warnings that
// have a cause. Owns what stands above every view of a session. Never draws a view itself.
import { html, useEffect, useRef } from "./lib.js";
import { api, exportCommand, exportOf, nameOf } from "./api.js";
import { Build } from "./build.js";
import { Evictions } from "./evictions.js";
import { age, count, cut, full, known, pct, sense, share, short, signed, usd } from "./format.js";
import { Failed, Waiting, useAction, useRead } from "./load.js";
import { titleOf } from "./overview.js";
import { Copy, Fig, Gauge, Icon, isWatched, net, netOf, sizeOf } from "./parts.js";
import { to } from "./route.js";
import { useSession } from "./session_data.js";
import { Timeline } from "./timeline.js";
import { Turns } from "./turns.js";
import { View } from "./view.js";
import { WhatIf } from "./whatif.js";
import { EvictNow, setPin, takeBack } from "./asks.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").PassRow} PassRow */

/** @type {[string, string, (props: { d: Data, off: boolean }) => any][]} */
const TABS = [
  ["timeline", "Timeline", Timeline], ["evictions", "Evictions", Evictions], ["turns", "Turns", Turns],
  ["view", "View at turn", View], ["build", "Build", Build], ["whatif", "What if", WhatIf],
];

/** Where texts come from, where that needs saying. @type {Record<string, string>} */
const CONTENT = {
  withheld: "texts are withheld by console.content",
  none: "no text of this session is in memory or stored",
};

/** @param {{ d: Data }} props */
function Figures({ d: { session, turns } }) {
  const row = session.row;
  const saved = netOf(row);
  const watched = isWatched(row);
  const size = sizeOf(row);
  const items = session.passes.reduce((a, p) => a + p.items, 0);
  const judged = session.passes.filter((p) => known(p.needed));
  const missed = judged.reduce((a, p) => a + (p.needed ?? 0), 0);
  const recalled = turns.recalled.reduce((a, n) => a + n, 0);
  const over = known(row.budget) && size > row.budget;
  const write = saved?.dollars ? signed : (/** @type {number} */ x) => `${x < 0 ? "−" : "+"}${short(Math.abs(x))}`;
  const cost = (/** @type {number} */ x) => (saved?.dollars ? usd(x) : short(x));
  return html`<div class="figs sess" tabindex="0" role="region" aria-label="Figures of the session">
    <${Fig} l=${watched ? "Sent as it came" : "View"} v=${short(size)} u=${`of ${short(row.budget)}`} c=${over ? "bad" : ""} s=${watched ? `the view would be ${full(row.out ?? row.view_tokens)}` : `agent’s history ${full(row.in ?? row.client_tokens)}`}><${Gauge} v=${size} budget=${row.budget} floor=${row.floor} w=${120}/><//>
    <${Fig} l=${watched ? "Would have saved, net" : "Saved, net"} v=${saved ? saved.text : "–"} u=${saved?.share} c=${saved ? sense(saved.money.net) : ""}
      s=${saved ? html`<span class="good">${write(saved.money.not_sent)}</span> <span class="bad">${write(-saved.money.rewrites)}</span> <span class="warn">${write(-saved.money.hidden)}</span>` : (row.saved ?? row.projected) ? "the model’s price is not known" : "not recorded"}/>
    <${Fig} l="Cost" v=${saved ? cost(watched ? saved.money.whole : saved.money.paid) : "–"} s=${saved ? (watched ? `would have been ${cost(saved.money.paid)}` : `of ${cost(saved.money.whole)}${saved.dollars ? "" : " units"} sent whole`) : "not recorded"}/>
    <${Fig} l="Cached" v=${pct(share(row.cached, row.prompt))} s=${known(row.prompt) ? `${short(row.prompt)} tokens sent` : "not recorded"}/>
    <${Fig} l=${watched ? "Would-be passes" : "Passes"} v=${full(row.passes ?? session.passes.length)} s=${watched ? `would have evicted ${count(items, "item")}` : `${count(items, "item")} evicted`}/>
    <${Fig} l="Needed later" v=${judged.length ? full(missed) : "–"} u=${judged.length ? `of ${full(items)}` : null} c=${missed ? "warn" : ""}
      s=${!judged.length && session.passes.length ? "can’t be told without content" : row.recalls ? `${count(row.recalls, "recall")} brought back ${short(recalled)}` : watched ? (judged.length ? "of what would be evicted" : "nothing would be evicted") : judged.length ? "of what was evicted" : "nothing was evicted"}/>
    <${Fig} l="Hidden hops" v=${full(row.hops)} s=${`${(row.hops / row.turn).toFixed(2)} a turn`}/></div>`;
}

/** What the session came to with all that descends from it. @param {{ d: Data }} props */
function Family({ d: { session } }) {
  const { row, tree } = session;
  if (!tree) return null;
  const watched = isWatched(row);
  const sum = net(watched ? tree.observed.projected : tree.saved);
  const others = tree.sessions - 1;
  const turns = tree.turns + tree.observed.turns;
  return html`<p class="line family"><b>With ${others > 0 ? count(others, "sub-agent") : "its branches"}:</b>
    <span>${count(turns, "turn")}</span>${watched ? null : html`<span>${count(tree.passes, "pass", "passes")}</span>`}
    <span>${short(tree.prompt)} tokens sent, ${pct(share(tree.cached, tree.prompt))} cached</span>
    ${sum ? html`<span>${watched ? "would have saved" : "saved"} <span class=${watched ? "" : sense(sum.money.net)}>${sum.text}</span> (${sum.share})</span>
      <span>cost ${usd(watched ? sum.money.whole : sum.money.paid)}${watched ? `, would have been ${usd(sum.money.paid)}` : ` of ${usd(sum.money.whole)} sent whole`}</span>` : null}
    ${tree.unpriced ? html`<span class="dim">${count(tree.unpriced, "session")} without a price</span>` : null}</p>`;
}

/** What is pinned and what waits for the next turn. @param {{ d: Data, off: boolean }} props */
function Standing({ d, off }) {
  const { pins, waiting } = d.session;
  const action = useAction();
  const back = (/** @type {string} */ id) => html`<button class="bare" disabled=${off || action.busy} aria-label=${`Take back what is asked of ${id}`} onClick=${() => takeBack(d, action, id)}>×</button>`;
  /** @type {import("./lib.js").Shown[]} */
  const waits = [
    ...(waiting.evict ? ["a pass"] : []),
    ...waiting.evictions.map((id) => html`the eviction of ${id} ${back(id)}`),
    ...waiting.recalls.map((id) => html`the recall of ${id} ${back(id)}`),
    ...(waiting.pins ? [count(waiting.pins, "change of pins", "changes of pins")] : []),
  ];
  return html`${action.said}${pins.length || waits.length ? html`<div class="line standing">
    ${pins.map((id) => html`<span class="pill" key=${id}><${Icon} n="pin" s=${11}/>${id}<button class="bare" disabled=${off || action.busy} aria-label=${`Unpin ${id}`} onClick=${() => setPin(d, action, id, false)}>×</button></span>`)}
    ${waits.length ? html`<span class="dim">waits: ${waits.map((one, i) => html`${i ? "; " : ""}${one}`)}</span>` : null}</div>` : null}`;
}

/** Passes close together that all stopped far above the floor. @param {PassRow[]} passes */
export function stoppedAbove(passes) {
  const far = passes.filter((p) => p.after > p.floor * 1.3);
  const close = far.filter((p) => far.filter((q) => Math.abs(q.turn - p.turn) < 18).length > 5);
  return close.length > 4 ? close : [];
}

/** What a session that is only watched has to say first. */
const Watched = () => html`<div class="ins" role="note"><${Icon} n="warn" s=${15}/><div><b>Only observed: nothing was evicted, and nothing was saved.</b> Every request was sent as it came. Views, passes, evictions and savings on this page are what managing would have come to.</div></div>`;

/** What a server that cuts prompts does not say itself. @param {{ d: Data, at: number }} props */
function Cuts({ d, at }) {
  const { turns } = d;
  const first = turns.cut.findIndex((cut) => known(cut));
  return html`<div class="ins bad" role="note"><${Icon} n="warn" s=${15}/><div><b>Your server cut the prompt at ${full(at)} tokens, and did not say so.</b> The model did not see all of what it was sent before turn ${turns.turn[first]}; since then every view stays below that.
    If the model can take more, load it with a larger context: <code>OLLAMA_CONTEXT_LENGTH</code> or <code>num_ctx</code> in Ollama, Context Length in LM Studio.</div></div>`;
}

/** @param {{ d: Data }} props */
function Warnings({ d }) {
  const cut = d.turns.cut.at(-1);
  return html`${known(cut) ? html`<${Cuts} d=${d} at=${cut}/>` : null}<${Lines} d=${d}/>`;
}

/** @param {{ d: Data }} props */
function Lines({ d }) {
  const { session, turns } = d;
  const over = turns.over.findIndex((o) => o === true);
  const above = stoppedAbove(session.passes);
  const last = turns.over.at(-1) === true;
  // Its views were not sent.
  if (last && !isWatched(session.row)) {
    const p = session.parts;
    const fixed = p ? p.user + p.system + p.tools : null;
    return html`<div class="ins bad"><${Icon} n="warn" s=${15}/><div><b>Over budget since turn ${turns.turn[over]}.</b> ${p ? html`What may not be evicted (users’ text ${short(p.user)}, system and tools ${short(p.system + p.tools)}) is ${short(fixed)} of ${short(session.row.budget)}. ` : null}
      A higher budget is the remedy: <a class="u" href=${to(d.name, "whatif")}>What if</a>.</div></div>`;
  }
  return above.length ? html`<${Above} d=${d} above=${above}/>` : null;
}

/** @param {{ d: Data, above: PassRow[] }} props */
function Above({ d, above }) {
  const first = /** @type {PassRow} */ (above[0]);
  const end = /** @type {PassRow} */ (above.at(-1));
  const read = useRead((stop) => api.pass(d.name, first.turn, stop), [d.name, first.turn]);
  const held = read.value?.held.find((h) => h.why !== "floor");
  const mean = above.reduce((a, p) => a + (p.freed ?? 0), 0) / above.length;
  const reread = above.reduce((a, p) => a + (p.reread ?? 0), 0);
  const why = { open: "it is open", needed: "open work depends on it", recent: "it is recent", pinned: "it is pinned", kept: "a rule keeps it", protected: "it may never go", floor: "" };
  const watched = isWatched(d.session.row);
  return html`<div class="ins"><${Icon} n="warn" s=${15}/><div><b>${above.length} passes in ${end.turn - first.turn + 1} turns ${watched ? "would have stopped" : "stopped"} above the floor</b> (turns ${first.turn}–${end.turn}) and freed ${short(mean)} each${held ? html`: <span class="tag">${held.name}</span> (${short(held.tokens)}) stayed because ${why[held.why]}` : null}.
    ${reread ? ` They ${watched ? "would have made" : "made"} the provider read ${short(reread)} anew.` : ""} <a class="u" href=${to(d.name, "evictions", { pass: first.turn })}>See them</a>.</div></div>`;
}

/** @param {{ name: string, view: string, visit: number, off: boolean, said: (title: string) => void }} props */
export function Session({ name, view, visit, off, said }) {
  const { data, error, again } = useSession(name);
  const tabs = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [view, Boolean(data)]);
  useEffect(() => {
    if (data) said(titleOf(data.session.row));
  }, [data?.session.row.title]);
  if (!data) {
    return html`<main id="main" tabindex="-1"><h1 class="sr">Session</h1>${error ? html`<${Failed} error=${error} again=${again}/>` : html`<section class="panel"><${Waiting} rows=${8} what="the session’s records"/></section>`}</main>`;
  }
  const row = data.session.row;
  const tab = TABS.find(([id]) => id === view) ?? TABS[0];
  const Current = /** @type {NonNullable<typeof tab>} */ (tab)[2];
  const counts = /** @type {Record<string, number>} */ ({ evictions: data.session.passes.length, turns: row.turn });
  const kids = data.session.children;
  const file = `${row.session.slice(0, 8)}.jsonl`;
  return html`<main id="main" tabindex="-1"><div class="shead"><div class="grow"><h1>${titleOf(row)}</h1>
    <div class="meta"><span class="mono">${row.session}</span><span>${cut(row.model)}</span><span>tenant ${row.tenant.slice(0, 6)}</span>
      ${row.zone ? html`<span>zone ${row.zone}</span>` : null}${isWatched(row) ? html`<span class="tag">only observed</span>` : null}
      ${row.profile ? html`<span>profile ${cut(row.profile)}</span>` : null}
      ${row.parent ? html`<a class="u" href=${to(nameOf({ session: row.parent, tenant: row.tenant }))}>${row.branch ? "branch of" : "parent"} ${row.parent.slice(0, 8)}</a>` : null}
      ${kids.map((kid) => html`<a class="u" key=${kid.session} href=${to(nameOf(kid))}>${kid.branch ? "branch" : "sub-agent"} ${kid.session.slice(0, 8)}</a>`)}
      <span>last turn ${age(row.ended / 1000)}</span>${CONTENT[data.session.content] ? html`<span class="tag">${CONTENT[data.session.content]}</span>` : null}</div></div>
    <div class="line">${isWatched(row) ? null : html`<${EvictNow} d=${data} off=${off}/>`}<a class="btn" href=${exportOf(name)} download=${file} title="The session as lines of JSON, as the command writes it">Download</a><${Copy} text=${exportCommand(row.session, file)} sm=${false}>Copy export command<//></div></div>
  ${isWatched(row) ? html`<${Watched}/>` : null}<${Standing} d=${data} off=${off}/><${Figures} d=${data}/><${Family} d=${data}/>
  <nav class="tabs" aria-label="Views of the session" ref=${tabs}>${TABS.map(([id, label]) => html`<a key=${id} href=${to(name, id)} aria-current=${id === (tab ?? TABS[0])?.[0] ? "page" : null}>${label}${counts[id] === undefined ? null : html`<span>${full(counts[id])}</span>`}</a>`)}</nav>
  <${Warnings} d=${data}/><${Current} key=${visit} d=${data} off=${off}/></main>`;
}

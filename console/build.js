// Build: a new session from what mattered in this one: exchanges, findings, single originals. Owns what is
// chosen. Never writes the session itself: the server does, so that every call has its result.
import { html, useEffect, useMemo, useState } from "./lib.js";
import { Refused, api } from "./api.js";
import { count, full, known, short } from "./format.js";
import { inView, markAt } from "./history.js";
import { Failed, Waiting } from "./load.js";
import { Ball, Copy, Gauge, Icon } from "./parts.js";
import { route } from "./route.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Item} Item */
/** @typedef {import("./shapes").Episode} Episode */
/** @typedef {{ from: number, to: number, user: Item | null, items: Item[], findings: Episode[] }} Exchange */
/** @typedef {{ exchanges: Set<number>, findings: Set<string>, items: Set<string> }} Chosen */

/** What it can be got as, by who goes on with it. @type {[string, [import("./shapes").BuildAsk["format"], string][]][]} */
const FORMATS = [
  ["for an agent", [["claude", "Claude Code"], ["codex", "codex"], ["pi", "pi"], ["opencode", "opencode"], ["text", "handoff text"]]],
  ["as a request", [["chat", "Chat"], ["responses", "Responses"], ["messages", "Messages"]]],
];
/** @type {Record<string, string>} */
const KINDS = { system: "", user: "user", assistant: "", call: "", finding: "expl", other: "" };

/** From one text of a user to the next. @param {Data} d @returns {Exchange[]} */
function exchangesOf(d) {
  const items = d.items?.list ?? [];
  const starts = [...new Set(items.filter((i) => i.role === "user").map((i) => i.turn))].sort((a, b) => a - b);
  const last = d.turns.turn.at(-1) ?? 1;
  if (!starts.length || /** @type {number} */ (starts[0]) > 1) starts.unshift(1);
  return starts.map((from, at) => {
    const to = (starts[at + 1] ?? last + 1) - 1;
    const inside = items.filter((i) => i.turn >= from && i.turn <= to && i.role !== "hidden" && i.role !== "system");
    return {
      from, to, items: inside,
      user: inside.findLast((i) => i.role === "user") ?? null,
      findings: d.session.episodes.filter((e) => e.finding && e.start >= from && e.start <= to),
    };
  });
}

/** @template T @param {Set<T>} set @param {T} value @param {boolean} on */
const with_ = (set, value, on) => {
  const next = new Set(set);
  if (on) next.add(value);
  else next.delete(value);
  return next;
};

/**
 * What is chosen as the server is asked for it. Nothing from the turn `cut` on is taken.
 * @param {Exchange[]} exchanges @param {Chosen} chosen @param {number | null} cut
 */
function askOf(exchanges, chosen, cut) {
  /** @type {[number, number][]} */
  const turns = [];
  for (const at of [...chosen.exchanges].sort((a, b) => a - b)) {
    const e = exchanges[at];
    const to = e && cut !== null ? Math.min(e.to, cut - 1) : e?.to;
    if (!e || to === undefined || to < e.from) continue;
    const before = turns.at(-1);
    if (before && before[1] === e.from - 1) before[1] = to;
    else turns.push([e.from, to]);
  }
  return { turns, findings: [...chosen.findings], items: [...chosen.items] };
}

/** @param {{ d: Data, off: boolean }} props */
export function Build({ d, off }) {
  const exchanges = useMemo(() => exchangesOf(d), [d.items, d.turns.turn.length, d.session.episodes]);
  const before = Number(route().query["before"] ?? 0) || null;
  const [cut, setCut] = useState(before);
  const [chosen, setChosen] = useState(/** @type {Chosen | null} */ (null));
  const [open, setOpen] = useState(/** @type {Set<number>} */ (new Set()));
  if (d.session.content === "withheld") return html`<section class="panel"><div class="empty"><h2>Build is off</h2>It needs the texts, and <code>console.content</code> withholds them here.</div></section>`;
  if (d.session.content === "none") return html`<section class="panel"><div class="empty"><h2>Nothing to build from</h2>No text of this session is in memory or stored. With <code>store.content = "all"</code>, later sessions have theirs.</div></section>`;
  if (!d.items) return html`<section class="panel">${d.itemsError ? html`<${Failed} error=${d.itemsError} again=${d.again}/>` : html`<${Waiting} what="the items"/>`}</section>`;
  const all = new Set(exchanges.map((_, at) => at));
  // A fork takes everything before the turn; otherwise what is newest is a beginning.
  const start = { exchanges: before ? all : new Set([...all].slice(-3)), findings: new Set(before ? [] : exchanges.slice(0, -3).flatMap((e) => e.findings.map((f) => f.name))), items: /** @type {Set<string>} */ (new Set()) };
  const now = chosen ?? start;
  const turns = d.turns.turn.at(-1) ?? 1;
  const wholeOf = (/** @type {number} */ at) => now.exchanges.has(at);
  const setExchange = (/** @type {number} */ at, /** @type {boolean} */ on) => {
    const e = /** @type {Exchange} */ (exchanges[at]);
    // A finding stands for its exchange, so whoever takes the exchange has it already.
    setChosen({
      exchanges: with_(now.exchanges, at, on),
      findings: on ? new Set([...now.findings].filter((f) => !e.findings.some((x) => x.name === f))) : now.findings,
      items: on ? new Set([...now.items].filter((id) => !e.items.some((x) => x.id === id))) : now.items,
    });
  };
  const setPart = (/** @type {number} */ at, /** @type {"findings" | "items"} */ what, /** @type {string} */ id, /** @type {boolean} */ on) =>
    setChosen({ ...now, exchanges: on ? with_(now.exchanges, at, false) : now.exchanges, [what]: with_(now[what], id, on) });
  return html`<div class="two bld"><section class="panel" aria-label="Take from this session"><div class="ph"><h2>Take from this session</h2><span class="dim wide">whole exchanges, findings, or single originals</span><span class="grow"></span>
    <label class="line small">leave out from turn <input class="cut" type="number" min="2" max=${turns} value=${cut ?? ""} placeholder="–" aria-label="Take nothing from this turn on" onInput=${(/** @type {any} */ e) => setCut(e.target.value ? Math.max(2, Number(e.target.value)) : null)}/></label>
    <button class="btn sm" onClick=${() => setChosen({ exchanges: new Set(), findings: new Set(), items: new Set() })}>None</button>
    <button class="btn sm" onClick=${() => setChosen({ exchanges: all, findings: new Set(), items: new Set() })}>All</button>
    <button class="btn sm" onClick=${() => setChosen({ exchanges: new Set(), items: new Set(), findings: new Set(exchanges.flatMap((e) => e.findings.map((f) => f.name))) })}>All findings</button></div>
    ${exchanges.map((e, at) => html`<${OneExchange} key=${e.from} e=${e} turns=${turns} cut=${cut} whole=${wholeOf(at)} now=${now} open=${open.has(at)} toggle=${() => setOpen(with_(open, at, !open.has(at)))}
      take=${(/** @type {boolean} */ on) => setExchange(at, on)} part=${(/** @type {"findings" | "items"} */ what, /** @type {string} */ id, /** @type {boolean} */ on) => setPart(at, what, id, on)}/>`)}</section>
    <${Made} d=${d} ask=${askOf(exchanges, now, cut)} off=${off}/></div>`;
}

/**
 * @param {{ e: Exchange, turns: number, cut: number | null, whole: boolean, now: Chosen, open: boolean, toggle: () => void,
 *   take: (on: boolean) => void, part: (what: "findings" | "items", id: string, on: boolean) => void }} props
 */
function OneExchange({ e, turns, cut, whole, now, open, toggle, take, part }) {
  const beyond = cut !== null && e.from >= cut;
  const to = cut !== null ? Math.min(e.to, cut - 1) : e.to;
  const items = cut === null ? e.items : e.items.filter((i) => i.turn < cut);
  const gone = items.filter((i) => !inView(i, turns + 1)).length;
  const calls = items.filter((i) => i.role === "call");
  const size = items.reduce((a, i) => a + (i.tokens ?? 0), 0);
  if (beyond) return html`<div class="bturn dim"><span></span><span class="nw">${e.from === e.to ? `turn ${e.from}` : `${e.from}–${e.to}`}</span><span class="ell">${e.user?.label ?? ""}</span><span>left out</span><span class="num">${short(e.items.reduce((a, i) => a + (i.tokens ?? 0), 0))}</span></div>`;
  const name = e.from === to ? `turn ${e.from}` : `${e.from}–${to}`;
  return html`<div class="bturn"><input type="checkbox" aria-label=${`exchange of ${name}`} checked=${whole} onChange=${(/** @type {any} */ ev) => take(ev.target.checked)}/><span class="dim nw">${name}</span>
    <button class="opener" aria-expanded=${open} onClick=${toggle}><${Icon} n=${open ? "down" : "right"} s=${11}/><span class="ell">${e.user?.label ?? html`<span class="dim">no text of the user</span>`}</span></button>
    <span>${to < e.to ? html`<span class="dim">${e.to === to + 1 ? `turn ${e.to}` : `${to + 1}–${e.to}`} left out</span> ` : null}${gone ? html`<span class="tag">${gone} of ${items.length} evicted</span>` : html`<span class="tag good">in view</span>`}</span><span class="num mid">${short(size)}</span></div>
    ${e.findings.filter((f) => cut === null || f.start < cut).map((f) => html`<div class="bturn in" key=${f.name}><input type="checkbox" aria-label=${`finding of ${f.name}`} checked=${now.findings.has(f.name)} onChange=${(/** @type {any} */ ev) => part("findings", f.name, ev.target.checked)}/><span><span class="tag expl">finding</span></span><span class="ell" title=${f.finding}><span class="strong">${f.name}</span> <span class="mid">${f.finding}</span></span><span></span><span></span></div>`)}
    ${open ? calls.map((i) => html`<div class="bturn in" key=${i.no}><input type="checkbox" aria-label=${i.id} checked=${now.items.has(i.id)} onChange=${(/** @type {any} */ ev) => part("items", i.id, ev.target.checked)}/><span class="idm ell">${i.id}</span><span class="ell mid">${i.label}</span><span class="mv"><${Ball} m=${markAt(i, turns)}/> ${markAt(i, turns)}</span><span class="num mid">${full(i.tokens)}</span></div>`) : null}`;
}

/** @param {{ d: Data, ask: { turns: [number, number][], findings: string[], items: string[] }, off: boolean }} props */
function Made({ d, ask, off }) {
  const [format, setFormat] = useState(/** @type {import("./shapes").BuildAsk["format"]} */ ("chat"));
  const [made, set] = useState(/** @type {{ built: import("./shapes").Built | null, error: Refused | null, busy: boolean }} */ ({ built: null, error: null, busy: false }));
  const [saved, setSaved] = useState(/** @type {import("./shapes").Built | null} */ (null));
  const empty = !ask.turns.length && !ask.findings.length && !ask.items.length;
  const key = JSON.stringify([ask, format]);
  useEffect(() => {
    if (empty || off) return undefined;
    const stop = new AbortController();
    set((had) => ({ ...had, busy: true }));
    const timer = setTimeout(() => {
      api.build(d.name, { format, ...ask }, stop.signal).then(
        (built) => stop.signal.aborted || set({ built, error: null, busy: false }),
        (caught) => stop.signal.aborted || set((had) => ({ ...had, busy: false, error: caught instanceof Refused ? caught : new Refused(String(caught), 0, "") })),
      );
    }, 250);
    return () => { clearTimeout(timer); stop.abort(); };
  }, [key, off, d.name]);
  const built = empty ? null : made.built;
  const budget = d.session.row.budget;
  const save = () => {
    if (!built) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([built.text], { type: built.type }));
    link.download = built.name;
    link.click();
    URL.revokeObjectURL(link.href);
    setSaved(built);
  };
  return html`<section class="panel sheetless" aria-label="New session"><div class="ph"><h2>New session</h2><span class="grow"></span><span role="status"><b>${built ? full(built.tokens) : "–"}</b><span class="dim">${known(budget) && built && built.tokens <= budget ? ` of ${full(budget)}` : " tokens"}</span></span></div><div class="pb">
    ${built ? html`${known(budget) && built.tokens > budget ? null : html`<${Gauge} v=${built.tokens} budget=${budget} w=${300} h=${10}/>`}<div class="sub cap">${count(built.messages, "message")} · every call has its result · this session stays as it is</div>
      ${known(budget) && built.tokens > budget ? html`<p class="cap">Whole it is longer than the budget of ${full(budget)}. Through Plimsoll the model is sent no more than that, from the first request on; with findings instead of exchanges it is shorter.</p>` : null}` : null}
    ${made.error ? html`<${Failed} error=${made.error}/>` : null}
    ${built?.missing.length ? html`<div class="ins"><${Icon} n="warn" s=${15}/><div>Not taken: ${built.missing.join("; ")}</div></div>` : null}
    ${FORMATS.map(([whom, forms]) => html`<div class="sub cap">get it ${whom}</div><div class="chips" role="group" aria-label=${`Get it ${whom}`}>${forms.map(([id, name]) => html`<button key=${id} class="chip" aria-pressed=${format === id} onClick=${() => setFormat(id)}>${name}</button>`)}</div>`)}
    ${built ? html`<div class="acts"><button class="btn pri" disabled=${made.busy} onClick=${save}>Download</button><${Copy} text=${() => built.text} sm=${false} disabled=${made.busy}/><span class="dim small" role="status">${saved === built ? html`<${Icon} n="done" s=${13}/> downloaded ` : null}${built.name}</span></div>
      ${built.run ? html`<p class="small resume">${built.put ? `Put it in ${built.put}. ` : ""}Resume with <code>${built.run}</code> <${Copy} text=${built.run}>Copy command<//></p>` : null}` : null}
    ${empty ? html`<div class="empty">Choose exchanges or findings.</div>` : built ? html`<div class="made" tabindex="0" role="region" aria-label="What it is made of">${built.parts.map((p) => html`<div><span><span class=${`tag ${KINDS[p.kind]}`}>${p.items > 1 ? `${p.items} items` : p.kind}</span></span><span class="ell">${p.label ?? ""}</span><span class="num mid">${full(p.tokens)}</span></div>`)}</div>` : html`<${Waiting} rows=${3} what="the new session"/>`}
    ${built ? html`<pre class="code preview" tabindex="0">${built.text.slice(0, 2000)}${built.text.length > 2000 ? "\n…" : ""}</pre>` : null}</div></section>`;
}

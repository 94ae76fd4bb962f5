// Turns: what each cost, and why. Owns this table and its filters; of thousands of turns only those near
// the screen are rows. Never sums savings beyond what the server says of each turn.
import { html, useMemo, useState } from "./lib.js";
import { Changed } from "./changed.js";
import { FailedRow, among, useFailures } from "./failures.js";
import { age, clock, count, full, known, pct, short, signed, time, usd } from "./format.js";
import { cachedAt } from "./history.js";
import { Chip, Term, isWatched } from "./parts.js";
import { go, note, route, to } from "./route.js";
import { useRows } from "./rows.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Turns["columns"]} Columns */
/** @typedef {NonNullable<Columns["missed"][number]>} Missed */
/** Shows what changed before a turn, or nothing again. @typedef {(turn: number | null) => void} Look */

const ROW = 31;
/** Always the same list, so that nothing is drawn again for it. @type {import("./shapes").Failure[]} */
const NONE = [];
/** Below this share a prompt was mostly read anew. */
const COLD = 0.6;

/** @type {[string, string, (c: Columns, i: number) => boolean][]} */
const KINDS = [
  ["pass", "with a pass", (c, i) => (c.passes[i] ?? 0) > 0],
  ["hops", "hidden hops", (c, i) => (c.hops[i]?.length ?? 0) > 1],
  ["recall", "recalls", (c, i) => (c.recalled[i] ?? 0) > 0],
  ["over", "over budget", (c, i) => c.over[i] === true],
  ["missed", "cache missed", (c, i) => Boolean(c.missed[i])],
  ["failed", "failed open", (c, i) => Boolean(c.fail_open[i])],
];

/** What made a provider read anew what it had cached. @type {Record<string, string>} */
const CAUSES = {
  pass: "a pass",
  guidance: "the guidance came in",
  expired: "a pause",
  client_system: "the agent’s system text changed",
  client_tools: "the agent’s tools changed",
  client_history: "the agent changed its history",
  model: "another model",
  effort: "thinking or tool choice changed",
  provider: "nothing changed: the provider’s doing",
};

/** Why a cache missed, in words. @param {Missed} missed */
export function whyMissed({ cause, idle_s: idle, lifetime_s: lifetime, message, said }) {
  const more = idle === null ? (message === null ? "" : `, from message ${full(message + 1)} on`) : ` of ${age(0, idle)} (kept for ${age(0, lifetime ?? 0)})`;
  return `${CAUSES[cause] ?? cause}${more}${said === null ? "" : `; the provider says ${said}`}`;
}

/** Where the cause of a miss can be looked at: a pass among the evictions, all else in what was sent. @param {{ d: Data, turn: number, missed: Missed, look: Look }} props */
function CacheMissed({ d, turn, missed, look }) {
  const { cause } = missed;
  const click = (/** @type {Event} */ e) => {
    e.stopPropagation();
    if (!cause.startsWith("client_")) return;
    // The filters of this view stay as they are.
    e.preventDefault();
    look(turn);
  };
  const href = cause === "pass" ? to(d.name, "evictions", { pass: turn }) : cause.startsWith("client_") ? to(d.name, "turns", { changed: turn }) : to(d.name, "view", { turn });
  return html`<a class="tag warn" href=${href} title=${`${full(missed.tokens)} tokens that the provider had cached were read anew`} onClick=${click}>cache missed ${short(missed.tokens)}: ${whyMissed(missed)}</a>`;
}

/** @param {{ d: Data, c: Columns, i: number, look: Look }} props */
function Happened({ d, c, i, look }) {
  const hops = (c.hops[i]?.length ?? 1) - 1;
  return html`<span class="tagsbox">${c.passes[i] ? html`<span class="tag">▾ ${count(c.passes[i], "pass", "passes")}</span>` : null}
    ${hops > 0 ? html`<span class="tag act">○ ${count(hops, "hop")}</span>` : null}${c.recalled[i] ? html`<span class="tag rec">▴ recalled ${full(c.recalled[i])}</span>` : null}
${c.missed[i] ? html`<${CacheMissed} d=${d} turn=${c.turn[i]} missed=${c.missed[i]} look=${look}/>` : null}
    ${c.over[i] ? html`<span class="tag bad">over budget</span>` : null}${c.fail_open[i] ? html`<span class="tag warn">failed open: ${c.fail_open[i]}</span>` : null}</span>`;
}

/** What a turn cost and saved, in dollars or units. @param {Columns} c @param {number} i */
function moneyOf(c, i) {
  const account = c.account[i];
  if (account?.usd) return { paid: usd(account.usd.paid, 4), net: account.usd.net, text: signed(account.usd.net, 4), least: 0.00005 };
  if (account?.units) return { paid: `${short(account.units.paid)} u`, net: account.units.net, text: `${account.units.net < 0 ? "−" : "+"}${short(Math.abs(account.units.net))} u`, least: 0.5 };
  return null;
}

/** @param {{ d: Data, i: number, most: number, at: number, look: Look }} props */
function Row({ d, i, most, at, look }) {
  const c = d.turns;
  const cached = cachedAt(c, i);
  const money = moneyOf(c, i);
  const x = (/** @type {number | null | undefined} */ v) => (known(v) ? (140 * v) / most : 0);
  const turn = c.turn[i];
  const ids = c.request_ids[i]?.filter((id) => id !== null) ?? [];
  const here = to(d.name, "view", { turn: turn ?? 1 });
  return html`<tr class="lk" aria-rowindex=${at + 2} onClick=${() => go(here)}><td class="num"><a href=${here} onClick=${(/** @type {Event} */ e) => e.stopPropagation()}>${turn}</a></td>
    <td class="num mid c3" title=${known(c.ended[i]) ? new Date(c.ended[i]).toLocaleString("en-GB") : ""}>${known(c.ended[i]) ? clock(c.ended[i]) : "–"}</td>
    <td class="c2"><svg width="142" height="10" aria-hidden="true"><rect x=".5" y="1" width=${x(c.in[i])} height="8" rx="1.5" fill="var(--histfill)" stroke="var(--line2)"/><rect x=".5" y="1" width=${x(c.out[i])} height="8" rx="1.5" fill=${c.over[i] ? "var(--bad)" : "var(--sent)"}/></svg></td>
    <td class="num mid c4">${full(c.in[i])}</td><td class=${`num${c.over[i] ? " bad" : ""}`}>${full(c.out[i] ?? c.hops[i]?.at(-1)?.[0])}</td>
    <td class=${`num${known(cached) && cached < COLD && i ? " warn" : ""}`}>${pct(cached)}</td><td class="happened"><${Happened} d=${d} c=${c} i=${i} look=${look}/></td>
    <td class="num mid c3">${time(c.own_ms[i])}</td><td class="num mid c3">${time(c.first_ms[i])}</td>
    <td class="num c4">${money ? money.paid : "–"}</td><td class=${`num ${money ? (money.net < -money.least ? "bad" : money.net > money.least ? "good" : "dim") : "dim"}`}>${money ? money.text : "–"}</td>
    <td class="idm c2" title=${ids.join(", ")}>${ids.at(-1) ?? "–"}</td></tr>`;
}

/** @param {{ d: Data }} props */
export function Turns({ d }) {
  const c = d.turns;
  const [on, setOn] = useState(/** @type {Record<string, boolean>} */ ({}));
  const counts = useMemo(() => KINDS.map(([, , yes]) => c.turn.filter((_, i) => yes(c, i)).length), [c]);
  const picked = KINDS.filter(([id]) => on[id]);
  const list = useMemo(() => c.turn.map((_, i) => i).filter((i) => picked.every(([, , yes]) => yes(c, i))).reverse(), [c, on]);
  const most = useMemo(() => Math.max(1, ...c.in.filter(known), ...c.out.filter(known)), [c]);
  const failed = useFailures(d.session.row.session).value?.failures ?? NONE;
  const [fails, setFails] = useState(false);
  const shown = useMemo(() => (fails ? failed : picked.length ? list : among(list, c.ended, failed)), [list, fails, failed]);
  const rows = useRows(shown.length, ROW);
  const would = isWatched(d.session.row);
  const [changed, setChanged] = useState(() => Number(route().query["changed"] ?? 0) || null);
  /** @type {Look} */
  const look = (turn) => {
    setChanged(turn);
    note({ changed: turn });
    scrollTo(0, 0);
  };
  return html`${changed ? html`<${Changed} key=${changed} d=${d} turn=${changed} close=${() => look(null)}/>` : null}<section class="panel" aria-label="Turns"><div class="filters">${KINDS.map(([id, name], k) => (id === "failed" && !counts[k] ? null : html`<${Chip} key=${id} on=${Boolean(on[id])} n=${counts[k]} set=${(/** @type {boolean} */ to_) => setOn({ ...on, [id]: to_ })}>${name}<//>`))}
    ${failed.length || fails ? html`<${Chip} on=${fails} n=${failed.length} set=${setFails}>failed<//>` : null}
    <span class="grow"></span><span class="dim" role="status">${list.length === c.turn.length ? count(c.turn.length, "turn") : `${full(list.length)} of ${count(c.turn.length, "turn")}`}${failed.length ? `, ${full(failed.length)} failed` : ""}</span></div>
    ${shown.length ? html`<table class="turns" aria-rowcount=${shown.length + 1}><caption class="sr">Turns, newest first</caption><thead><tr><th class="num" scope="col">Turn</th><th class="num c3" scope="col">Ended</th><th class="c2" scope="col">${would ? "Would be sent of history" : "Sent of history"}</th><th class="num c4" scope="col">In</th><th class="num" scope="col">${would ? "Would be sent" : "Sent"}</th><th class="num" scope="col">Cached</th><th scope="col">What happened</th><th class="num c3" scope="col"><${Term} t="own">Own time<//></th><th class="num c3" scope="col"><${Term} t="first">First byte<//></th><th class="num c4" scope="col">${would ? "Would cost" : "Cost"}</th><th class="num" scope="col">${would ? "Would save" : "Net"}</th><th class="c2" scope="col">Upstream’s request id</th></tr></thead>
      <tbody ref=${rows.ref}>${rows.above ? html`<tr class="gap" aria-hidden="true"><td colspan="12" style=${{ height: `${rows.above}px` }}></td></tr>` : null}
      ${shown.slice(rows.first, rows.last).map((one, n) => (typeof one === "number" ? html`<${Row} key=${c.turn[one]} d=${d} i=${one} most=${most} at=${rows.first + n} look=${look}/>` : html`<${FailedRow} key=${`f${one.number}`} f=${one} at=${rows.first + n}/>`))}
      ${rows.below ? html`<tr class="gap" aria-hidden="true"><td colspan="12" style=${{ height: `${rows.below}px` }}></td></tr>` : null}</tbody></table>` : html`<div class="empty">No such turn.</div>`}</section>`;
}

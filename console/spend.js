// What was paid and saved by day, and by model, program, tenant and role. Owns the bounds of the bars, which are cut in the
// browser's zone, and how bars are drawn. Never adds up sessions: the server does.
import { html, useEffect, useMemo, useNarrow, useRef, useState, useWidth } from "./lib.js";
import { api } from "./api.js";
import { count, cut, full, pct, sense, share, short, signed, usd } from "./format.js";
import { useEvents } from "./live.js";
import { Failed, Waiting, useRead, useSoon } from "./load.js";
import { Facts, Seg } from "./parts.js";

/** @typedef {import("./shapes").Spend} Spent */
/** @typedef {Spent["bars"][number]} Bar */
/** @typedef {"today" | "week" | "month" | "all"} Range */
/** @typedef {"model" | "agent" | "tenant" | "role"} By */

const DAYS = { today: 1, week: 7, month: 30 };
/** How many weeks stand by themselves where everything is asked for. */
const WEEKS = 26;
/** How often what was spent is read again while turns end, in ms. */
const SOON = 2000;

/** The midnight that began a day so many days ago, in the browser's zone. @param {Date} now @param {number} days */
const midnight = (now, days) => new Date(now.getFullYear(), now.getMonth(), now.getDate() - days).getTime();

/** Where the bars of a range begin: hours of today, days, or weeks behind all that was before. @param {Range} range @param {Date} now */
export function boundsOf(range, now) {
  if (range === "today") {
    const from = midnight(now, 0);
    const hours = Math.ceil((midnight(now, -1) - from) / 3600e3);
    return Array.from({ length: hours }, (_, i) => from + i * 3600e3);
  }
  if (range === "all") return [0, ...Array.from({ length: WEEKS }, (_, i) => midnight(now, 7 * (WEEKS - i) - 1))];
  return Array.from({ length: DAYS[range] }, (_, i) => midnight(now, DAYS[range] - 1 - i));
}

/** What a bar is called. @param {number} from @param {Range} range */
function nameOf(from, range) {
  const at = new Date(from);
  if (range === "today") return `${String(at.getHours()).padStart(2, "0")}:00`;
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  if (range !== "all") return day;
  return from ? `7 days from ${day}` : "before, and what of longer sessions is older than sixty days";
}

/** In dollars where anything has a price, else in prompt tokens. @param {Bar} bar @param {boolean} priced @returns {[number, number]} */
const sides = (bar, priced) => (priced ? [bar.paid, bar.whole] : [bar.sent, bar.client]);

/** @param {{ bars: Bar[], range: Range, priced: boolean, w: number }} props */
function Bars({ bars, range, priced, w }) {
  const narrow = useNarrow();
  const height = narrow ? 84 : 112;
  const foot = 16;
  const most = Math.max(...bars.map((bar) => Math.max(...sides(bar, priced))), 1e-9);
  const step = w / bars.length;
  const wide = Math.max(1, Math.min(36, step - Math.max(1, step / 5)));
  const tall = (/** @type {number} */ v) => (v / most) * (height - foot - 14);
  const write = priced ? usd : short;
  // As many names as have room, the newest first.
  const every = Math.ceil(bars.length / Math.max(1, Math.floor(w / 64)));
  return html`<svg class="days" width=${w} height=${height} aria-hidden="true">
    <line x1="0" x2=${w} y1=${height - foot + 0.5} y2=${height - foot + 0.5} stroke="var(--line2)"/>
    <text x="0" y="10" class="t">${write(most)}</text>
    ${bars.map((bar, i) => {
      const [paid, whole] = sides(bar, priced);
      const x = i * step + (step - wide) / 2;
      const base = height - foot;
      const names = (bars.length - 1 - i) % every === 0;
      return html`<g key=${bar.from}><title>${`${nameOf(bar.from, range)}: ${write(paid)} ${priced ? "paid" : "tokens sent"}, ${write(whole)} sent whole${priced ? `, ${signed(bar.saved)} saved` : ""}, ${count(bar.turns, "turn")}`}</title>
        <rect x=${i * step} y="0" width=${step} height=${height} fill="transparent"/>
        ${whole > paid ? html`<rect class="savedbar" x=${x + 0.5} y=${base - tall(whole)} width=${wide - 1} height=${tall(whole) - tall(paid)}/>` : null}
        <rect class="paidbar" x=${x} y=${base - tall(paid)} width=${wide} height=${tall(paid)}/>
        ${whole < paid ? html`<line class="wholeline" x1=${x - 2} x2=${x + wide + 2} y1=${base - tall(whole)} y2=${base - tall(whole)}/>` : null}
        ${names ? html`<text class="t" x=${x + wide / 2} y=${height - 3} text-anchor=${i === bars.length - 1 && step < 40 ? "end" : "middle"}>${(bar.from ? nameOf(bar.from, range).replace("7 days from ", "") : "before")}</text>` : null}</g>`;
    })}</svg>`;
}

/** @param {{ spent: Spent, by: By, priced: boolean }} props */
function ByTable({ spent, by, priced }) {
  if (by === "role") {
    if (!priced) return html`<p class="sub">No price is known.</p>`;
    const roles = { main: "the sessions’ work", hidden: "hidden hops", aside: "requests without tools" };
    return html`<table class="by"><caption class="sr">By role</caption><thead><tr><th scope="col">Role</th><th class="num" scope="col">Paid</th><th class="num" scope="col">Share</th></tr></thead><tbody>
      ${spent.by.role.map((row) => html`<tr key=${row.name}><td>${row.name} <span class="dim">${roles[row.name]}</span></td><td class="num">${usd(row.paid)}</td><td class="num">${pct(share(row.paid, spent.total.paid + spent.beside.paid))}</td></tr>`)}</tbody></table>
      ${spent.beside.turns ? html`<p class="sub">aside has ${count(spent.beside.turns, "request")} beside sessions (${usd(spent.beside.paid)}), as far as this process saw them, which the bars do not have</p>` : null}`;
  }
  const words = { model: "Model", agent: "Program", tenant: "Tenant" };
  const name = (/** @type {string | null} */ text) => (text === null ? "all others" : text === "" ? "not said" : by === "tenant" ? text.slice(0, 12) : cut(text));
  return html`<table class="by"><caption class="sr">By ${by}</caption><thead><tr><th scope="col">${words[by]}</th><th class="num" scope="col">Turns</th>${priced ? html`<th class="num" scope="col">Paid</th><th class="num" scope="col">Sent whole</th><th class="num" scope="col">Saved, net</th>` : html`<th class="num" scope="col">Tokens sent</th><th class="num" scope="col">Sent whole</th>`}</tr></thead><tbody>
    ${spent.by[by].map((row) => html`<tr key=${row.name ?? "\u0000"}><td>${name(row.name)}</td><td class="num">${full(row.turns)}</td>${priced
      ? row.unpriced === row.turns ? html`<td class="num dim" colspan="3">no price is known</td>` : html`<td class="num">${usd(row.paid)}</td><td class="num">${usd(row.whole)}</td><td class=${`num ${sense(row.saved)}`}>${signed(row.saved)}</td>`
      : html`<td class="num">${short(row.sent)}</td><td class="num">${short(row.client)}</td>`}</tr>`)}</tbody></table>`;
}

/** @param {{ spent: Spent, priced: boolean }} props */
function Headline({ spent: { total }, priced }) {
  if (!total.turns) return html`<span class="dim">no turn in this time</span>`;
  if (!priced) return html`<span><b class="big">${short(total.sent)}</b> prompt tokens sent</span><span><b class="big">${short(total.client)}</b> sent whole</span><span class="dim">no price is known</span>`;
  return html`<span><b class="big">${usd(total.paid)}</b> paid</span><span><b class=${`big ${sense(total.saved)}`}>${signed(total.saved)}</b> saved, ${pct(share(total.saved, total.whole))}</span><span><b class="big">${usd(total.whole)}</b> sent whole</span>`;
}

/** @type {[Range, string][]} */
const RANGES = [["today", "Today"], ["week", "7 days"], ["month", "30 days"], ["all", "All"]];
/** @type {[By, string][]} */
const BYS = [["model", "Model"], ["agent", "Program"], ["tenant", "Tenant"], ["role", "Role"]];

export function Spend() {
  const [range, setRange] = useState(/** @type {Range} */ ("today"));
  const [by, setBy] = useState(/** @type {By} */ ("model"));
  const [ref, w] = useWidth();
  const read = useRead((stop) => api.spend(boundsOf(range, new Date()), stop), [range]);
  const soon = useSoon(read.again, SOON);
  useEvents((event) => {
    if (event.kind === "turn") soon();
  }, [soon]);
  // At midnight today is another day, whether or not anything happens.
  useEffect(() => {
    const timer = setTimeout(read.again, midnight(new Date(), -1) - Date.now() + 1000);
    return () => clearTimeout(timer);
  }, [read.value]);
  // What was read last stays while another range is read, and so does what is open below.
  const last = useRef(/** @type {{ spent: Spent, range: Range } | null} */ (null));
  if (read.value) last.current = { spent: read.value, range };
  const spent = read.value ?? last.current?.spent ?? null;
  const told = read.value ? range : (last.current?.range ?? range);
  const priced = Boolean(spent && spent.total.unpriced < Math.max(1, spent.total.turns));
  const bars = useMemo(() => {
    // What was before the weeks has no bar if there is nothing.
    const all = spent?.bars ?? [];
    return told === "all" ? all.slice(Math.max(0, all.findIndex((bar) => bar.turns > 0))) : all;
  }, [spent, told]);
  return html`<section class="panel spend" aria-label="Cost and savings"><div class="ph"><h2>Cost and savings</h2><span class="grow"></span>
      <${Seg} label="Range" v=${range} on=${setRange} o=${RANGES}/></div>
    <div class="pb" ref=${ref}>${read.error && !spent ? html`<${Failed} error=${read.error} again=${read.again}/>` : !spent ? html`<${Waiting} rows=${3} what="what was spent"/>` : html`
      <div class="headline" role="status"><${Headline} spent=${spent} priced=${priced}/>
        <span class="dim">${count(spent.total.turns, "turn")} of ${count(spent.total.sessions, "session")}${priced && spent.total.unpriced ? `, ${full(spent.total.unpriced)} without a price` : ""}${spent.whole ? "" : "; the newest 100,000 sessions only"}</span></div>
      ${w && bars.length ? html`<${Bars} bars=${bars} range=${told} priced=${priced} w=${w}/>` : null}
      <div class="legend" aria-hidden="true"><span><i class="sq paidkey"></i>${priced ? "paid" : "sent"}</span><span><i class="sq savedkey"></i>${priced ? "saved: sent whole, less what was paid" : "not sent: sent whole, less what was sent"}</span></div>`}</div>
    ${spent ? html`<${Facts} name=${told === "today" ? "Hours" : "Days"} head=${["From", "Turns", ...(priced ? ["Paid", "Sent whole", "Saved, net"] : []), "Tokens sent", "Tokens sent whole"]}
      rows=${() => bars.map((bar) => {
        // Without a price there is no amount, and none is not nothing.
        const money = (/** @type {string} */ text) => (bar.turns && bar.unpriced === bar.turns ? "–" : text);
        return [nameOf(bar.from, told), full(bar.turns), ...(priced ? [money(usd(bar.paid)), money(usd(bar.whole)), money(signed(bar.saved))] : []), full(bar.sent), full(bar.client)];
      })}/>
      <details class="facts"><summary>By model, program, tenant and role</summary><div class="pb"><${Seg} label="By" v=${by} on=${setBy} o=${BYS}/><div class="tw" tabindex="0" role="region" aria-label="Sums"><${ByTable} spent=${spent} by=${by} priced=${priced}/></div></div></details>` : null}</section>`;
}

// Which tools fill the context: tokens in view and evicted, calls, and what of it was needed later, by tool. Owns this sum
// over a session's items and its table. Never decides what was needed: the server does.
import { html, useMemo } from "./lib.js";
import { count, cut, full, pct, share, short } from "./format.js";
import { inView, sentAt, sizeAt } from "./history.js";
import { isWatched } from "./parts.js";
import { to } from "./route.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Item} Item */
/** @typedef {{ name: string, calls: number, view: number, evicted: number, moved: number, needed: number, missed: number }} Tool */

/** How many tools stand by themselves. */
const MOST = 12;

/** What stands for a tool where an item is none's. @type {Record<Item["role"], string>} */
const KINDS = { user: "users’ text", assistant: "the model’s text", system: "system text", call: "a tool without a name", hidden: "hidden calls" };

/** Whose tokens an item's are: a tool's, by its name, or those of a kind of text. @param {Item} item */
const ownerOf = (item) => item.tool ?? KINDS[item.role];

/**
 * What each tool has in the view of a turn and what of it was evicted until then, the largest first.
 * @param {Item[]} items @param {number} turn
 */
export function byTool(items, turn) {
  /** @type {Map<string, Tool>} */
  const found = new Map();
  for (const item of items) {
    if (!sentAt(item, turn)) continue;
    const name = ownerOf(item);
    const tool = found.get(name) ?? { name, calls: 0, view: 0, evicted: 0, moved: 0, needed: 0, missed: 0 };
    found.set(name, tool);
    const view = inView(item, turn) ? (sizeAt(item, turn) ?? item.tokens ?? 0) : 0;
    tool.calls += item.role === "call" ? 1 : 0;
    tool.view += view;
    if (item.marks.some(([from, mark]) => from <= turn && mark !== "live")) {
      tool.moved += 1;
      tool.evicted += Math.max(0, (item.tokens ?? 0) - view);
    }
    tool.needed += item.needed && item.needed.turn <= turn ? 1 : 0;
    tool.missed += item.needed && item.needed.turn <= turn && item.needed.how !== "in view" ? 1 : 0;
  }
  return [...found.values()].sort((a, b) => b.view + b.evicted - a.view - a.evicted);
}

/** @param {{ d: Data, turn: number }} props */
export function Tools({ d, turn }) {
  const all = useMemo(() => byTool(d.items?.list ?? [], turn), [d.items, turn]);
  if (!all.length) return null;
  const would = isWatched(d.session.row);
  const shown = all.slice(0, MOST);
  const total = all.reduce((sum, tool) => sum + tool.view, 0);
  const most = Math.max(1, ...all.map((tool) => tool.view + tool.evicted));
  return html`<section class="panel" aria-label="By tool"><div class="ph"><h2>By tool</h2><span class="dim">${would ? `whose tokens the view of turn ${turn} would have, and what of them would be evicted` : `whose tokens the view of turn ${turn} has, and what of them was evicted`}</span></div>
    <div class="tw" tabindex="0" role="region" aria-label="Tokens by tool"><table class="tools"><caption class="sr">Tokens by tool</caption><thead><tr><th scope="col">Tool</th><th class="c3" scope="col"><span class="sr">In view and evicted</span></th>
      <th class="num" scope="col">In view</th><th class="num c4" scope="col">Share</th><th class="num" scope="col">${would ? "Would be evicted" : "Evicted"}</th><th class="num c4" scope="col">Calls</th><th class="num" scope="col" title="Evicted items that a later answer needed, and those of them that the view did not have then">Needed later</th></tr></thead>
      <tbody>${shown.map((tool) => html`<tr key=${tool.name}><td><a href=${to(d.name, "view", { turn, find: tool.name })}>${cut(tool.name, 40)}</a></td>
        <td class="c3"><svg width="160" height="10" aria-hidden="true"><rect x="0" y="1" width=${(160 * tool.view) / most} height="8" fill="var(--sent)"/><rect x=${(160 * tool.view) / most} y="1" width=${(160 * tool.evicted) / most} height="8" fill="var(--histfill)" stroke="var(--line2)"/></svg></td>
        <td class="num">${short(tool.view)}</td><td class="num c4">${pct(share(tool.view, total), 0)}</td><td class="num">${tool.moved ? short(tool.evicted) : "–"}</td><td class="num c4">${tool.calls ? full(tool.calls) : "–"}</td>
        <td class="num">${d.items?.needed ? html`${full(tool.needed)}${tool.missed ? html` <span class="bad">${full(tool.missed)} not in view</span>` : null}` : "–"}</td></tr>`)}</tbody></table></div>
    ${all.length > MOST ? html`<div class="pb dim">${count(all.length - MOST, "tool")} more with ${short(all.slice(MOST).reduce((sum, tool) => sum + tool.view, 0))} tokens in view</div>` : null}</section>`;
}

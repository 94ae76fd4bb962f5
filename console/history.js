// A session as it was at each of its turns: what the agent sent, what stood in the view, and with which
// mark. Owns these readings of items and columns. Never fetches; what was saved, held or needed later is
// the server's word.

/** @typedef {import("./shapes").Item} Item */
/** @typedef {import("./shapes").MarkName} MarkName */
/** @typedef {import("./shapes").Session} Session */
/** @typedef {import("./shapes").Turns["columns"]} Columns */

/** The turn whose request had it first: what the model said comes back with the next one. @param {Item} item */
export function arrives(item) {
  const first = item.sizes[0]?.[0];
  if (item.role === "assistant") return Math.max(item.turn + 1, first ?? 0);
  return first ?? (item.role === "call" ? item.turn + 1 : item.turn);
}

/** Whether the agent sent it in a turn's request. @param {Item} item @param {number} turn */
export const sentAt = (item, turn) => item.role !== "hidden" && arrives(item) <= turn;

/** Its tokens in the view of a turn; null if sizes are not known. @param {Item} item @param {number} turn */
export function sizeAt(item, turn) {
  if (!item.sizes.length) return null;
  let size = 0;
  for (const [from, tokens] of item.sizes) {
    if (from > turn) break;
    size = tokens;
  }
  return size;
}

/** Its mark in the view of a turn. @param {Item} item @param {number} turn @returns {MarkName} */
export function markAt(item, turn) {
  /** @type {MarkName} */
  let mark = "live";
  for (const [from, name] of item.marks) {
    if (from > turn) break;
    mark = name;
  }
  return mark;
}

/** Whether anything of it stands in the view of a turn. @param {Item} item @param {number} turn */
export function inView(item, turn) {
  if (arrives(item) > turn) return false;
  const size = sizeAt(item, turn);
  return size === null ? markAt(item, turn) !== "removed" : size > 0;
}

/** Whether a hidden item is a recall's result. @param {Item} item */
export const isRecall = (item) => item.role === "hidden" && (item.tool === "recall" || item.id.startsWith("recall"));

/** @typedef {{ part: string, name: string, tokens: number, fill: string }} Part */

const PARTS = /** @type {[string, string, string][]} */ ([
  ["system", "system, tools, framing", "var(--sys)"],
  ["user", "users’ text", "var(--user)"],
  ["open", "open episode", "var(--act)"],
  ["needed", "what it depends on", "var(--dep)"],
  ["closed", "closed, still whole", "var(--closed)"],
  ["left", "left of what was evicted", "var(--rest)"],
  ["marks", "marks, findings, ledger", "var(--kept)"],
  ["recalled", "recalled", "var(--rec)"],
]);

/** The server's parts of the newest view. @param {NonNullable<Session["parts"]>} p @returns {Part[]} */
export const partsNow = (p) =>
  PARTS.map(([part, name, fill]) => ({
    part, name, fill,
    tokens: part === "system" ? p.system + p.tools : p[/** @type {"user"} */ (part)],
  }));

/** The episode that is open at a turn. @param {Session} session @param {number} turn */
export const openAt = (session, turn) =>
  session.episodes.findLast((e) => e.start <= turn && (e.end === null || e.end > turn));

/**
 * How many tokens one counted token of an item is on the scale of the budget in a turn, where its prologue is not an item's: what
 * was sent of the others over what was counted of them.
 * @param {Columns} columns @param {Item[]} items @param {number} turn
 */
export function scaleAt(columns, items, turn) {
  const i = at(columns, turn);
  let held = 0;
  for (const item of items) if (item.role !== "system" && inView(item, turn)) held += sizeAt(item, turn) ?? 0;
  return held ? ((columns.out[i] ?? held) - (columns.prologue[i] ?? 0)) / held : 1;
}

/**
 * The parts of the view at an earlier turn. The prologue is the server's, as in the parts of the newest view.
 * @param {Session} session @param {Columns} columns @param {Item[]} items @param {number} turn
 * @returns {Part[] | null} null if sizes are not known
 */
export function partsAt(session, columns, items, turn) {
  const i = at(columns, turn);
  if (i < 0 || columns.out[i] === null || !items.some((i) => i.sizes.length)) return null;
  const scale = scaleAt(columns, items, turn);
  const open = openAt(session, turn);
  /** @type {Record<string, number>} */
  const sum = { user: 0, open: 0, needed: 0, closed: 0, left: 0, marks: 0, recalled: 0 };
  for (const item of items) {
    const size = item.role !== "system" && inView(item, turn) ? (sizeAt(item, turn) ?? 0) : 0;
    if (!size) continue;
    const part = partOf(session, item, turn, open);
    sum[part] = (sum[part] ?? 0) + size * scale;
  }
  sum["system"] = columns.prologue[i] ?? 0;
  return PARTS.map(([part, name, fill]) => ({ part, name, fill, tokens: sum[part] ?? 0 }));
}

/** @param {Session} session @param {Item} item @param {number} turn @param {import("./shapes").Episode | undefined} open */
function partOf(session, item, turn, open) {
  if (item.role === "user") return "user";
  if (item.role === "hidden") return isRecall(item) ? "recalled" : "marks";
  if (markAt(item, turn) !== "live") return "left";
  const episode = item.episode === null ? undefined : session.episodes[item.episode];
  if (open && episode === open) return "open";
  return episode && open?.deps.includes(episode.name) ? "needed" : "closed";
}

/** The index of a turn in the columns, or -1. @param {Columns} columns @param {number} turn */
export function at(columns, turn) {
  const first = columns.turn[0];
  const guess = first === undefined ? -1 : turn - first;
  return columns.turn[guess] === turn ? guess : columns.turn.indexOf(turn);
}

/** The share of a turn's last prompt that the provider's cache held. @param {Columns} columns @param {number} i */
export function cachedAt(columns, i) {
  const hop = columns.hops[i]?.at(-1);
  return hop && hop[1] && hop[2] !== null ? hop[2] / hop[1] : null;
}

/** Turns in which something was needed that the view had not, each once. @param {Item[]} items */
export function missedAt(items) {
  const turns = items.flatMap((i) => (i.needed && i.needed.how !== "in view" && i.needed.how !== "recalled" ? [i.needed.turn] : []));
  return [...new Set(turns)].sort((a, b) => a - b);
}

/** Whether an item has this text in its id, its label or its tool. @param {{ id: string, label: string | null, tool?: string | null }} item @param {string} text */
export const mentions = (item, text) => `${item.id} ${item.label ?? ""} ${item.tool ?? ""}`.toLowerCase().includes(text.toLowerCase());

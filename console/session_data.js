// What is read of one session: its row and episodes, its turns as columns, its items; and how word of a
// new turn gets into them. Owns these reads and their order. Never decides what is shown of them.
import { useEffect } from "./lib.js";
import { api } from "./api.js";
import { useEvents } from "./live.js";
import { useRead, useSoon } from "./load.js";

/** @typedef {import("./shapes").Session} Session */
/** @typedef {import("./shapes").Turns} Turns */
/** @typedef {import("./shapes").Item} Item */
/** @typedef {{ list: Item[], content: Session["content"], needed: boolean }} Items */
/**
 * @typedef {object} Data
 * @property {string} name under which the page links to it
 * @property {Session} session
 * @property {Turns["columns"]} turns
 * @property {Items | null} items null while they are read
 * @property {import("./api.js").Refused | null} itemsError
 * @property {() => void} again reads the session and its items anew
 */

/** All turns: a page holds 5,000 at most. @param {string} name @param {AbortSignal} stop @returns {Promise<Turns["columns"]>} */
async function allTurns(name, stop) {
  const first = await api.turns(name, 1, stop);
  let all = first.columns;
  let to = first.to;
  while (to < first.total && all.turn.length) {
    const page = await api.turns(name, to + 1, stop);
    if (page.to <= to) break;
    to = page.to;
    all = joined(all, page.columns);
  }
  return all;
}

/** @param {Turns["columns"]} a @param {Turns["columns"]} b @returns {Turns["columns"]} */
function joined(a, b) {
  /** @type {any} */
  const out = {};
  for (const key of Object.keys(a)) out[key] = [.../** @type {any} */ (a)[key], .../** @type {any} */ (b)[key]];
  return out;
}

/** Adds a turn at the end, or puts it in place of one of its number. @param {Turns["columns"]} had @param {import("./shapes").Turn} turn */
function withTurn(had, turn) {
  const place = had.turn.indexOf(turn.turn);
  const last = had.turn.at(-1) ?? 0;
  if (place < 0 && turn.turn !== last + 1) return null;
  /** @type {any} */
  const out = {};
  for (const key of Object.keys(had)) {
    const column = [.../** @type {any} */ (had)[key]];
    column[place < 0 ? column.length : place] = /** @type {any} */ (turn)[key];
    out[key] = column;
  }
  return /** @type {Turns["columns"]} */ (out);
}

/** @param {string} name @param {AbortSignal} stop @returns {Promise<Items>} */
async function allItems(name, stop) {
  /** @type {Item[]} */
  const list = [];
  let cursor = null;
  for (;;) {
    const page = /** @type {import("./shapes").Items} */ (await api.items(name, cursor, stop));
    list.push(...page.items);
    if (page.next === null) return { list, content: page.content, needed: page.needed };
    cursor = page.next;
  }
}

/** @param {string} name */
export function useSession(name) {
  const session = useRead((stop) => api.session(name, stop), [name]);
  const turns = useRead((stop) => allTurns(name, stop), [name]);
  const items = useRead((stop) => allItems(name, stop), [name]);
  const soonSession = useSoon(session.again, 150);
  const soonItems = useSoon(items.again, 600);
  const [id, tenant] = name.split("@");
  useEvents((event) => {
    const { data } = event;
    if (event.kind === "session" && data.parent === id) soonSession();
    if (data.session !== id || (tenant && !data.tenant.startsWith(tenant))) return;
    if (event.kind === "turn") {
      session.put((had) => ({ ...had, row: { ...data.row, title: data.row.title ?? had.row.title, finding: data.row.finding ?? had.row.finding } }));
      turns.put((had) => {
        const next = withTurn(had, data.turn);
        if (!next) queueMicrotask(turns.again);
        return next ?? had;
      });
    }
    if (event.kind === "turn" || event.kind === "pass") {
      soonSession();
      soonItems();
    }
  }, [name]);
  useEffect(() => {
    if (session.value) document.title = `${session.value.row.title ?? session.value.row.session.slice(0, 8)} · Plimsoll`;
    return () => {
      document.title = "Plimsoll";
    };
  }, [session.value?.row.title]);
  const error = (!session.value && session.error) || (!turns.value && turns.error) || null;
  /** @type {Data | null} */
  const data = session.value && turns.value
    ? {
      name, session: session.value, turns: turns.value, items: items.value, itemsError: items.error,
      again: () => { session.again(); items.again(); },
    }
    : null;
  return { data, error, again: () => { session.again(); turns.again(); items.again(); } };
}

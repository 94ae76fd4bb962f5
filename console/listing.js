// The list of sessions as it is read: pages by cursor, sub-agents and branches under their parents, turns as they
// happen. Owns which rows are there and in which order. Never draws one.
import { useCallback, useEffect, useRef, useState } from "./lib.js";
import { Refused, api } from "./api.js";
import { useEvents } from "./live.js";
import { useSoon } from "./load.js";
import { sizeOf } from "./parts.js";

/** @typedef {import("./shapes").SessionRow} Row */
/** @typedef {Record<string, string>} Asked */

const PAGE = 100;
/** As many as one search of older sessions can find. */
const OLDER = 500;
/** A row whose turn ends moves to the top only from below this place, so that rows don't jump under the eye. */
const CALM = 20;

/** @param {{ session: string, tenant: string }} a @param {{ session: string, tenant: string }} b */
const same = (a, b) => a.session === b.session && a.tenant === b.tenant;

/** What an event's row leaves out stays. @param {Row} had @param {Row} row @returns {Row} */
const merged = (had, row) => ({
  ...row,
  title: row.title ?? had.title,
  finding: row.finding ?? had.finding,
  item: row.item ?? had.item,
  spark: row.spark.length ? row.spark : [...had.spark, sizeOf(row)].slice(-48),
});

/**
 * The rows that are read so far; `need(n)` reads on until there are n.
 * @param {Asked} asked
 */
export function useListing(asked) {
  const key = JSON.stringify(asked);
  const [state, set] = useState({ rows: /** @type {Row[]} */ ([]), total: /** @type {number | null} */ (null), unsearched: /** @type {number | null} */ (null), older: /** @type {string | null} */ (null), error: /** @type {Refused | null} */ (null) });
  const reading = useRef({ key: "", next: /** @type {string | null} */ (null), busy: false, want: 0, have: 0, stop: new AbortController() });

  const read = useCallback(async () => {
    const mine = reading.current;
    if (mine.busy) return;
    mine.busy = true;
    try {
      do {
        const query = { ...JSON.parse(mine.key), spark: "1", limit: String(PAGE), ...(mine.next ? { cursor: mine.next } : {}) };
        const page = await api.sessions(query, mine.stop.signal);
        if (reading.current !== mine) return;
        const first = mine.next === null;
        mine.next = page.next;
        set((had) => {
          const before = first ? [] : had.rows;
          const rows = [...before, ...page.sessions.filter((row) => !before.some((old) => same(old, row)))];
          mine.have = rows.length;
          // Of two searches the one that stopped earlier counts: the next goes on from there, and nothing is left out.
          const older = first || Number.parseInt(page.older ?? "0", 10) > Number.parseInt(had.older ?? "0", 10) ? page.older : had.older;
          return { rows, total: first ? (page.total ?? rows.length) : had.total, unsearched: page.unsearched, older, error: null };
        });
        mine.have = Math.max(mine.have, 1);
        await new Promise((done) => setTimeout(done));
      } while (mine.next !== null && mine.have < mine.want);
    } catch (caught) {
      if (reading.current !== mine || mine.stop.signal.aborted) return;
      set((had) => ({ ...had, error: caught instanceof Refused ? caught : new Refused(String(caught), 0, "") }));
    } finally {
      mine.busy = false;
    }
  }, []);

  const again = useCallback(() => {
    reading.current.stop.abort();
    reading.current = { key, next: null, busy: false, want: reading.current.want, have: 0, stop: new AbortController() };
    void read();
  }, [key]);
  useEffect(() => {
    reading.current.want = 0;
    again();
    return () => reading.current.stop.abort();
  }, [key]);

  // Texts are searched in pages of their own: what is found in older sessions stands behind the rest.
  const goOn = useCallback(async (/** @type {string} */ older) => {
    const mine = reading.current;
    try {
      const page = await api.sessions({ ...JSON.parse(mine.key), spark: "1", limit: String(OLDER), older }, mine.stop.signal);
      if (reading.current !== mine) return;
      set((had) => {
        const found = page.sessions.filter((row) => !had.rows.some((old) => same(old, row)));
        mine.have += found.length;
        return { ...had, rows: [...had.rows, ...found], total: (had.total ?? 0) + found.length, unsearched: page.unsearched, older: page.older, error: null };
      });
    } catch (caught) {
      if (reading.current !== mine || mine.stop.signal.aborted) return;
      set((had) => ({ ...had, error: caught instanceof Refused ? caught : new Refused(String(caught), 0, "") }));
    }
  }, []);

  const need = useCallback((/** @type {number} */ rows) => {
    const mine = reading.current;
    mine.want = Math.max(mine.want, rows);
    if (mine.next !== null && mine.have < mine.want) void read();
  }, []);

  // An event's row has no title, finding or spark: those are read from records, so they are asked for.
  const fresh = useRef(/** @type {Set<string>} */ (new Set()));
  const freshen = useSoon(async () => {
    const names = [...fresh.current];
    fresh.current.clear();
    for (const q of names) {
      const page = await api.sessions({ q, spark: "1", limit: "5" }).catch(() => null);
      for (const row of page?.sessions ?? []) set((had) => ({ ...had, rows: had.rows.map((old) => (same(old, row) ? { ...row, item: old.item } : old)) }));
    }
  }, 500);
  useEvents((event) => {
    if (event.kind === "resync") again();
    if (event.kind !== "turn") return;
    const row = /** @type {Row} */ (event.data.row);
    fresh.current.add(row.session);
    freshen();
    set((had) => {
      if (had.total === null) return had;
      const i = had.rows.findIndex((old) => same(old, row));
      const old = had.rows[i];
      if (old) {
        const rest = had.rows.filter((r) => r !== old);
        rest.splice(asked["sort"] === "last" && i >= CALM ? 0 : i, 0, merged(old, row));
        return { ...had, rows: rest };
      }
      // A row that is not read yet, or one that no filter has judged: what is asked for says which.
      const filtered = Object.keys(asked).some((name) => name !== "sort");
      if (row.turn > 1 || filtered) return had;
      return { ...had, rows: [row, ...had.rows], total: had.total + 1 };
    });
  }, [key]);
  return { ...state, need, goOn, again };
}

/**
 * Sub-agents behind their parents, where both are read; those of folded parents are left out.
 * @param {Row[]} rows @param {Set<string>} folded names of parents
 * @returns {{ row: Row, depth: number, children: number }[]}
 */
export function nested(rows, folded) {
  /** @type {Map<string, Row[]>} */
  const children = new Map();
  const names = new Map(rows.map((row) => [`${row.session}@${row.tenant}`, row]));
  /** @param {Row} row */
  const parentOf = (row) => (row.parent !== null && row.parent !== row.session ? names.get(`${row.parent}@${row.tenant}`) : undefined);
  const roots = [];
  for (const row of rows) {
    const parent = parentOf(row);
    if (!parent) roots.push(row);
    else children.set(parent.session + parent.tenant, [...(children.get(parent.session + parent.tenant) ?? []), row]);
  }
  /** @type {{ row: Row, depth: number, children: number }[]} */
  const out = [];
  /** @param {Row} row @param {number} depth */
  const add = (row, depth) => {
    const below = children.get(row.session + row.tenant) ?? [];
    out.push({ row, depth, children: below.length });
    if (!folded.has(row.session)) for (const child of below) add(child, Math.min(3, depth + 1));
  };
  for (const row of roots) add(row, 0);
  return out;
}

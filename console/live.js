// Word from the server as it comes, and whether it still comes. Owns the one stream of events. Never says
// what an event means for a view.
import { api } from "./api.js";
import { useEffect, useState } from "./lib.js";

/** @typedef {"turn" | "pass" | "session" | "upstream" | "failed" | "resync"} Kind */
/** @typedef {{ kind: Kind, data: any }} Heard */
/** @typedef {{ on: boolean, since: number, heard: number }} Link */

const KINDS = /** @type {Kind[]} */ (["turn", "pass", "session", "upstream", "failed", "resync"]);
/** How long to wait before asking again after a refusal; a browser itself asks again after a break. */
const AGAIN = 4000;

/** @type {Set<(event: Heard) => void>} */
const listeners = new Set();
/** @type {Set<() => void>} */
const watchers = new Set();
/** @type {Link} */
let link = { on: true, since: Date.now(), heard: Date.now() };
/** @type {EventSource | null} */
let source = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let again;
let broken = false;

/** @param {Heard} event */
const tell = (event) => listeners.forEach((listener) => listener(event));

/** @param {boolean} on */
function set(on) {
  const now = Date.now();
  if (on === link.on && on) link.heard = now;
  else if (on !== link.on) {
    link = { on, since: now, heard: on ? now : link.heard };
    watchers.forEach((watcher) => watcher());
  }
}

function open() {
  clearTimeout(again);
  source?.close();
  const mine = new EventSource("/api/events");
  source = mine;
  mine.onopen = () => {
    set(true);
    // Nobody heard what happened in between: a browser that heard no event yet has none to go on from.
    if (broken) tell({ kind: "resync", data: { missed: null } });
    broken = false;
  };
  mine.onerror = () => {
    set(false);
    broken = true;
    if (mine.readyState === EventSource.CLOSED) {
      // Why it was refused does not show here: another question tells whether the login has ended.
      api.overview().catch(() => undefined);
      clearTimeout(again);
      again = setTimeout(open, AGAIN);
    }
  };
  for (const kind of KINDS) {
    mine.addEventListener(kind, (event) => {
      link.heard = Date.now();
      tell({ kind, data: JSON.parse(/** @type {MessageEvent} */ (event).data) });
    });
  }
}

/** Opens the stream; once for the page. */
export const listen = open;

/** Asks at once, and has everything read anew. */
export function retry() {
  broken = true;
  open();
}

/** @param {(event: Heard) => void} heard @param {unknown[]} [on] */
export function useEvents(heard, on = []) {
  useEffect(() => {
    listeners.add(heard);
    return () => void listeners.delete(heard);
  }, on);
}

/** Whether word comes from the server, and since when it does or does not. @returns {Link} */
export function useLink() {
  const [at, update] = useState(link);
  useEffect(() => {
    const watcher = () => update(link);
    watchers.add(watcher);
    watcher();
    return () => void watchers.delete(watcher);
  }, []);
  return at;
}

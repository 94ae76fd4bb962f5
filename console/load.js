// Reading from the server: waiting, had, or refused; what was had stays while it is read again. Owns the
// states of a read and what is shown for them. Never knows what is read.
import { html, useCallback, useEffect, useRef, useState } from "./lib.js";
import { Refused } from "./api.js";
import { cut } from "./format.js";
import { useEvents } from "./live.js";
import { Icon } from "./parts.js";

/** @typedef {import("./lib.js").Shown} Shown */

/**
 * @template T
 * @typedef {{ value: T | null, error: Refused | null, busy: boolean, again: () => void, put: (change: (had: T) => T) => void }} Read
 */

/**
 * Reads once for each change of `on`, and again after `again()` or after a gap in the events.
 * @template T
 * @param {(stop: AbortSignal) => Promise<T>} read @param {unknown[]} on
 * @returns {Read<T>}
 */
export function useRead(read, on) {
  const [state, set] = useState(/** @type {{ value: T | null, error: Refused | null, busy: boolean }} */ ({ value: null, error: null, busy: true }));
  const latest = useRef(read);
  latest.current = read;
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const run = useCallback((/** @type {boolean} */ fresh) => {
    stop.current?.abort();
    const mine = new AbortController();
    stop.current = mine;
    set((had) => ({ value: fresh ? null : had.value, error: null, busy: true }));
    latest.current(mine.signal).then(
      (value) => mine.signal.aborted || set({ value, error: null, busy: false }),
      (caught) => {
        if (mine.signal.aborted) return;
        const error = caught instanceof Refused ? caught : new Refused(String(caught), 0, "");
        set((had) => ({ value: had.value, error, busy: false }));
      },
    );
  }, []);
  useEffect(() => {
    run(true);
    return () => stop.current?.abort();
  }, on);
  useEvents((event) => {
    if (event.kind === "resync") run(false);
  }, []);
  const again = useCallback(() => run(false), []);
  const put = useCallback((/** @type {(had: T) => T} */ change) => {
    set((had) => (had.value === null ? had : { ...had, value: change(had.value) }));
  }, []);
  return { ...state, again, put };
}

/** Calls `work` once, a while after the last of several calls. @param {() => void} work @param {number} [wait] */
export function useSoon(work, wait = 300) {
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current !== undefined) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      latest.current();
    }, wait);
  }, [wait]);
}

/** @param {{ error: Refused, again?: () => void }} props */
export const Failed = ({ error, again }) => html`<div class="ins bad" role="alert"><${Icon} n="warn" s=${15}/>
  <div>${cut(error.message, 300)}${error.code ? html` <code>${error.status || ""} ${error.code}</code>` : null}</div>
  ${again ? html`<button class="btn sm" onClick=${again}>Try again</button>` : null}</div>`;

/** The shape of what is awaited, at once; after two seconds, what it is. @param {{ rows?: number, what: string }} props */
export function Waiting({ rows = 5, what }) {
  const [late, set] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => set(true), 2000);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="pb waiting" role="status"><span class="sr">Reading ${what}</span>
    ${Array.from({ length: rows }, (_, i) => html`<div class="skrow" key=${i}><span class="skel" style=${{ width: `${62 - i * 5}%` }}/><span class="skel"/><span class="skel"/></div>`)}
    <div class="dim small">${late ? `reading ${what}` : "\u00a0"}</div></div>`;
}

/** Scrolls an answer into sight, if it stands below. @param {Element | null} answer */
const intoSight = (answer) => answer?.scrollIntoView({ block: "nearest" });

/** What a person is told beside a button, or asked. @param {{ done?: boolean, children: Shown }} props */
export const Note = ({ done = false, children }) => html`<div class=${`ins${done ? " done" : ""}`} role="status" ref=${intoSight}><${Icon} n=${done ? "done" : "warn"} s=${15}/><div>${children}</div></div>`;

/**
 * What was asked for by a button: waiting, done or refused, each with its words.
 * @returns {{ busy: boolean, run: (work: () => Promise<Shown>) => Promise<void>, said: Shown }}
 */
export function useAction() {
  const [busy, setBusy] = useState(false);
  const [said, say] = useState(/** @type {Shown} */ (null));
  const run = async (/** @type {() => Promise<Shown>} */ work) => {
    setBusy(true);
    say(null);
    try {
      const words = await work();
      if (words) say(html`<${Note} done>${words}<//>`);
    } catch (caught) {
      say(html`<${Failed} error=${caught instanceof Refused ? caught : new Refused(String(caught), 0, "")}/>`);
    }
    setBusy(false);
  };
  return { busy, run, said };
}

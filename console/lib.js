// The libraries, under the names that the console uses. Owns how a template becomes elements, and the
// few hooks that several views share. Never holds a view's state.
import { h, render, createContext } from "./vendor/preact.js";
import {
  useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

/** @typedef {import("preact").VNode<any>} Node */
/** @typedef {Node | string | number | boolean | null | undefined | Shown[]} Shown */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => Node} */
export const html = /** @type {any} */ (htm.bind(h));
export { createContext, h, render, useCallback, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState };

/**
 * The width of an element in CSS pixels, 0 until it is laid out.
 * @returns {[import("preact").RefObject<any>, number]}
 */
export function useWidth() {
  const ref = /** @type {import("preact").RefObject<any>} */ (useRef(null));
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    if (!ref.current) return undefined;
    set(Math.floor(ref.current.getBoundingClientRect().width));
    const observer = new ResizeObserver((entries) => {
      const entry = entries[0];
      if (entry) set(Math.floor(entry.contentRect.width));
    });
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

/**
 * Whether a media query holds, now and later.
 * @param {string} query
 */
export function useMedia(query) {
  const [on, set] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const tell = () => set(media.matches);
    media.addEventListener("change", tell);
    tell();
    return () => media.removeEventListener("change", tell);
  }, [query]);
  return on;
}

/** Whether the page is as narrow as a phone; the style sheets have the same bound. */
export const useNarrow = () => useMedia("(max-width: 720px)");

/**
 * Calls `heard` for each key that is pressed outside a field for text.
 * @param {(event: KeyboardEvent) => void} heard
 */
export function useKeys(heard) {
  const latest = useRef(heard);
  latest.current = heard;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const tell = (event) => {
      const on = /** @type {HTMLElement | null} */ (event.target);
      const text = on instanceof HTMLInputElement && on.type !== "range" && on.type !== "checkbox";
      if (text || on instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
      latest.current(event);
    };
    addEventListener("keydown", tell);
    return () => removeEventListener("keydown", tell);
  }, []);
}

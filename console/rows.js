// Windows of rows: of ten thousand rows only those near the screen are elements, and on paper the first thousands. Owns
// which those are. Never draws a row.
import { useEffect, useLayoutEffect, useRef, useState } from "./lib.js";

/** Rows beyond each edge of the screen, so that a quick scroll meets no gap. */
const MARGIN = 12;
/** So many rows go on paper. */
const PRINTED = 2000;

/**
 * The rows from `first` up to `last` are to be drawn, with `above` and `below` pixels in place of the rest.
 * `ref` goes to the element whose top is the first row's.
 * @param {number} total @param {number} height of a row in pixels
 */
export function useRows(total, height) {
  const ref = /** @type {import("preact").RefObject<any>} */ (useRef(null));
  const [at, set] = useState({ first: 0, last: Math.min(total, 60) });
  const measure = () => {
    if (!ref.current) return;
    const top = ref.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.min(total, Math.floor(-top / height) - MARGIN));
    const last = Math.max(first, Math.min(total, Math.ceil((innerHeight - top) / height) + MARGIN));
    set((had) => (had.first === first && had.last === last ? had : { first, last }));
  };
  useLayoutEffect(measure, [total, height]);
  useEffect(() => {
    let due = 0;
    const soon = () => {
      due ||= requestAnimationFrame(() => {
        due = 0;
        measure();
      });
    };
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(due);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
    };
  }, [total, height]);
  const [paper, print] = useState(false);
  useEffect(() => {
    const begin = () => print(true);
    const end = () => print(false);
    addEventListener("beforeprint", begin);
    addEventListener("afterprint", end);
    return () => {
      removeEventListener("beforeprint", begin);
      removeEventListener("afterprint", end);
    };
  }, []);
  if (paper) return { ref, first: 0, last: Math.min(PRINTED, total), above: 0, below: 0 };
  const first = Math.min(at.first, total);
  const last = Math.min(at.last, total);
  return { ref, first, last, above: first * height, below: (total - last) * height };
}

/** Brings a row to the screen. @param {Element | null} body @param {number} row @param {number} height @param {number} head */
export function scrollToRow(body, row, height, head) {
  if (!body) return;
  const top = body.getBoundingClientRect().top + row * height;
  if (top < head) scrollBy(0, top - head);
  else if (top + height > innerHeight) scrollBy(0, top + height - innerHeight + 8);
}

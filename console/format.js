// Numbers, money and times as text. Owns how each kind of figure is written; what is unknown is a dash.
// Never decides whether a figure is good or bad.

const NONE = "–";
const MINUS = "−";

/** @typedef {number | null | undefined} Maybe */

/** @param {Maybe} n @returns {n is number} */
export const known = (n) => typeof n === "number" && Number.isFinite(n);

/** Tokens in three digits or so: 950, 9.5k, 95k, 9.5M. @param {Maybe} n @returns {string} */
export function short(n) {
  if (!known(n)) return NONE;
  if (n < 0) return MINUS + short(-n);
  if (n < 999.5) return String(Math.round(n));
  if (n < 9950) return `${(n / 1000).toFixed(1)}k`;
  if (n < 999500) return `${Math.round(n / 1000)}k`;
  return `${(n / 1e6).toFixed(n < 9.95e6 ? 2 : 1)}M`;
}

/** A round value of a scale of tokens, with all of its digits: 12.5k, which `short` would call 13k. @param {number} n */
export const tick = (n) => (n >= 9950 && n < 999500 ? `${Number((n / 1000).toPrecision(6))}k` : short(n));

/** All digits, in groups of three. @param {Maybe} n */
export const full = (n) => (known(n) ? Math.round(n).toLocaleString("en-US") : NONE);

/** Dollars. @param {Maybe} x @param {number} [digits] */
export const usd = (x, digits = cents(x)) =>
  known(x) ? `${x < 0 ? MINUS : ""}$${Math.abs(x).toFixed(digits)}` : NONE;

/** Dollars with a sign; no sign where it rounds to nothing. @param {Maybe} x @param {number} [digits] */
export function signed(x, digits = cents(x)) {
  if (!known(x)) return NONE;
  if (Math.abs(x) < 0.5 * 10 ** -digits) return `$${(0).toFixed(digits)}`;
  return `${x < 0 ? MINUS : "+"}$${Math.abs(x).toFixed(digits)}`;
}

/** As many digits as an amount needs to be told from nothing. @param {Maybe} x */
const cents = (x) => (!known(x) || Math.abs(x) >= 0.0995 || x === 0 ? 2 : Math.abs(x) >= 0.001 ? 3 : 4);

/** A share as per cent. @param {Maybe} x @param {number} [digits] */
export const pct = (x, digits = 1) =>
  known(x) ? `${x < 0 ? MINUS : ""}${(100 * Math.abs(x)).toFixed(digits)} %` : NONE;

/** A share of a whole that may be unknown or nothing. @param {Maybe} part @param {Maybe} whole */
export const share = (part, whole) => (known(part) && known(whole) && whole > 0 ? part / whole : null);

/** Milliseconds; seconds from ten of them on. @param {Maybe} ms */
export const time = (ms) =>
  !known(ms) ? NONE : ms < 10000 ? `${ms < 100 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;

/** How long ago a time in Unix seconds is. @param {Maybe} at @param {number} [now] */
export function age(at, now = Date.now() / 1000) {
  if (!known(at)) return NONE;
  const s = Math.max(0, now - at);
  if (s < 60) return "now";
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** A name at a length that can be read: clients, models and recordings give names of any. @param {string} text @param {number} [most] */
export const cut = (text, most = 60) => (text.length > most ? `${text.slice(0, most)}…` : text);

/** The time of day of a moment in milliseconds. @param {number} ms */
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

/** `1 pass`, `2 passes`. @param {Maybe} n @param {string} one @param {string} [many] */
export const count = (n, one, many = `${one}s`) => `${full(n)} ${n === 1 ? one : many}`;

/** The class that says whether money was saved or lost; none where it rounds to nothing. @param {Maybe} x */
export const sense = (x) => (!known(x) || Math.abs(x) < 0.0005 ? "dim" : x < 0 ? "bad" : "good");

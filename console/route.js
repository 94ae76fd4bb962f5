// Where the page is: `#/` is the overview, `#/failures` what failed, `#/s/SESSION/VIEW?turn=7` a view of a session. Owns the form
// of these addresses. Never reads data.
import { useEffect, useState } from "./lib.js";

/** @typedef {{ session: string | null, page: "failures" | null, view: string, query: Record<string, string> }} Route */

/**
 * A part of an address as it was before it was written there. A person can type any, and one that nobody wrote
 * so is a name as it stands.
 * @param {string} part
 */
function partOf(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @returns {Route} */
export function route() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [kind, session, view] = path.split("/").filter(Boolean).map(partOf);
  return {
    session: kind === "s" && session ? session : null,
    page: kind === "failures" ? kind : null,
    view: view ?? "timeline",
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/**
 * The address of a view of a session.
 * @param {string} session @param {string} [view] @param {Record<string, string | number>} [query]
 */
export function to(session, view = "timeline", query) {
  const asked = query ? `?${new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)]))}` : "";
  return `#/s/${encodeURIComponent(session).replace("%40", "@")}/${view}${asked}`;
}

/** @param {string} address */
export function go(address) {
  location.hash = address;
}

/**
 * Changes the query of this view without a step in the browser's history.
 * @param {Record<string, string | number | null>} changes
 */
export function note(changes) {
  const at = route();
  if (at.session === null) return;
  const query = { ...at.query };
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) delete query[key];
    else query[key] = String(value);
  }
  history.replaceState(null, "", to(at.session, at.view, query));
}

/** The address, and how often it was gone to: a view is made anew each time, because it reads its query only once. */
export function useRoute() {
  const [at, set] = useState(() => ({ ...route(), visit: 0 }));
  useEffect(() => {
    const tell = () => set((had) => ({ ...route(), visit: had.visit + 1 }));
    addEventListener("hashchange", tell);
    return () => removeEventListener("hashchange", tell);
  }, []);
  return at;
}

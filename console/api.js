// The server's API: what is read, what is asked for, and why something was refused. Owns requests, the
// token and the form of errors. Never keeps an answer.

/** Why something could not be had: the server's sentence and its code, or that it did not answer. */
export class Refused extends Error {
  /** @param {string} message @param {number} status @param {string} code */
  constructor(message, status, code) {
    super(message);
    /** 0 if the server did not answer. */
    this.status = status;
    this.code = code;
  }
}

// A page of another site can't read this, so it can't ask for a change.
const token = document.querySelector('meta[name="plimsoll-token"]')?.getAttribute("content") ?? "";

/** @param {unknown} caught @param {AbortSignal} [stop] */
function unanswered(caught, stop) {
  if (stop?.aborted) return caught;
  return new Refused("The server does not answer.", 0, "unreachable");
}

/** @param {Response} response */
async function refusal(response) {
  // The page was served to somebody who had the admin token, so the login has ended, as with its process.
  if (response.status === 401) location.reload();
  const body = await response.json().catch(() => null);
  const error = body && typeof body === "object" ? body.error : null;
  return new Refused(error?.message ?? `The server answered ${response.status}.`, response.status, error?.code ?? "");
}

/**
 * @param {string} path @param {Record<string, string | number | null | undefined>} [query] @param {AbortSignal} [stop]
 * @returns {Promise<any>}
 */
async function get(path, query = {}, stop) {
  const asked = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") asked.set(key, String(value));
  }
  const text = asked.toString();
  let response;
  try {
    response = await fetch(`/api/${path}${text ? `?${text}` : ""}`, { signal: stop ?? null });
  } catch (caught) {
    throw unanswered(caught, stop);
  }
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** @param {string} path @param {unknown} body @param {AbortSignal} [stop] */
async function send(path, body, stop) {
  let response;
  try {
    response = await fetch(`/api/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-plimsoll-console": token },
      body: JSON.stringify(body),
      signal: stop ?? null,
    });
  } catch (caught) {
    throw unanswered(caught, stop);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/**
 * A link names a session by its id and, after an `@`, the beginning of its tenant, for whoever reads it. No two
 * tenants have a session of one id.
 * @param {string} name
 */
const pathOf = (name) => `sessions/${encodeURIComponent(name.split("@")[0] ?? "")}`;

/** The name under which the page links to a session. @param {{ session: string, tenant: string }} row */
export const nameOf = (row) => (row.tenant ? `${row.session}@${row.tenant.slice(0, 8)}` : row.session);

/**
 * The command that has the server write a session to a file. What listens elsewhere than on this machine is reached at the
 * address that the page has.
 * @param {string} session @param {string} file
 */
export function exportCommand(session, file) {
  const { hostname, port } = location;
  const host = /^[\d.]+$|^\[/.test(hostname) ? hostname : "127.0.0.1";
  return `plimsoll export ${session} --admin ${host}:${port || "80"} --out ${file}`;
}

/** Where a session is to be had as a file. @param {string} name */
export const exportOf = (name) => `/api/${pathOf(name)}/export`;

/** @param {string} name @param {string} action @param {unknown} body @param {AbortSignal} [stop] */
const act = (name, action, body, stop) => send(`${pathOf(name)}/${action}`, body, stop);

export const api = {
  /** @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Overview>} */
  overview: (stop) => get("overview", {}, stop),
  /** @param {number[]} bounds where bars begin, in ms @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Spend>} */
  spend: (bounds, stop) => get("spend", { bounds: bounds.join(",") }, stop),
  /** @param {{ session?: string | undefined, limit: number }} query @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Failures>} */
  failures: (query, stop) => get("failures", query, stop),
  /** @param {Record<string, string | number | null>} query @param {AbortSignal} [stop] @returns {Promise<import("./shapes").SessionList>} */
  sessions: (query, stop) => get("sessions", query, stop),
  /** @param {string} name @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Session>} */
  session: (name, stop) => get(pathOf(name), {}, stop),
  /** @param {string} name @param {number} from @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Turns>} */
  turns: (name, from, stop) => get(`${pathOf(name)}/turns`, { from }, stop),
  /** @param {string} name @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Changes>} */
  changes: (name, stop) => get(`${pathOf(name)}/changes`, {}, stop),
  /** @param {string} name @param {string | null} cursor @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Items>} */
  items: (name, cursor, stop) => get(`${pathOf(name)}/items`, { cursor, limit: 5000 }, stop),
  /** @param {string} name @param {string | number} item @param {number} turn @param {AbortSignal} [stop] @returns {Promise<import("./shapes").ItemDetail>} */
  item: (name, item, turn, stop) => get(`${pathOf(name)}/items/${encodeURIComponent(item)}`, { turn }, stop),
  /** @param {string} name @param {number} turn @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Pass>} */
  pass: (name, turn, stop) => get(`${pathOf(name)}/passes/${turn}`, {}, stop),

  /** @param {string} name @param {string[]} ids @returns {Promise<import("./shapes").Asked>} */
  pin: async (name, ids) => (await act(name, "pin", { ids })).json(),
  /** @param {string} name @param {string[]} ids @returns {Promise<import("./shapes").Asked>} */
  unpin: async (name, ids) => (await act(name, "unpin", { ids })).json(),
  /** @param {string} name @param {import("./shapes").EvictAsk} ask @returns {Promise<import("./shapes").Waits>} */
  evict: async (name, ask) => (await act(name, "evict", ask)).json(),
  /** @param {string} name @param {import("./shapes").RecallAsk} ask @returns {Promise<import("./shapes").Waits>} */
  recall: async (name, ask) => (await act(name, "recall", ask)).json(),
  /** @param {string} name @param {string[]} items @returns {Promise<import("./shapes").Waiting>} */
  withdraw: async (name, items) => (await act(name, "withdraw", { items })).json(),
  /** @param {string} name @param {import("./shapes").BuildAsk} ask @param {AbortSignal} [stop] @returns {Promise<import("./shapes").Built>} */
  build: async (name, ask, stop) => (await act(name, "build", ask, stop)).json(),
  /**
   * Calls `heard` with each line of the answer as it comes.
   * @param {string} name @param {import("./shapes").WhatIfAsk} ask
   * @param {(line: any) => void} heard @param {AbortSignal} stop
   */
  async whatif(name, ask, heard, stop) {
    const response = await act(name, "whatif", ask, stop);
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read().catch((caught) => {
        throw unanswered(caught, stop);
      });
      rest += decoder.decode(value, { stream: !done });
      const lines = rest.split("\n");
      rest = done ? "" : (lines.pop() ?? "");
      for (const line of lines) if (line.trim()) heard(JSON.parse(line));
      if (done) return;
    }
  },
};

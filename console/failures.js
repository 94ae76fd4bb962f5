// Requests that failed: the page of all of them, their rows among a session's turns, and the overview's count.
// Owns the words for how a request failed and what was tried. Never judges whose fault it was.
import { html, useEffect, useState } from "./lib.js";
import { api, nameOf } from "./api.js";
import { clock, count, cut, full } from "./format.js";
import { useEvents } from "./live.js";
import { Failed, Waiting, useRead, useSoon } from "./load.js";
import { Copy, Fig } from "./parts.js";
import { go, route, to } from "./route.js";

/** @typedef {import("./shapes").Failure} Failure */

/** More than the process keeps. */
const ALL = 5000;
/** How many rows the page begins with, and adds. */
const SOME = 200;
/** How much of what was said stands in a row. */
const LINE = 110;

/** Why a call was repeated. @type {Record<string, string>} */
const RETRIED = {
  connect: "there was no connection",
  status: "its status is tried again",
  idle: "a kept connection had died",
  hop: "a hidden hop failed",
  breakpoints: "once more without Plimsoll’s breakpoints",
  edits: "once more without edits that it may have been refused for",
  thoughts: "once more without thoughts",
};

/** A moment with its date. @param {number} ms */
const dated = (ms) => new Date(ms).toLocaleString("en-GB");

/** How many failed, by kind. @param {Record<string, number>} failed */
const kinds = (failed) => Object.entries(failed).map(([kind, n]) => (kind === "broken" ? `broke off ${full(n)}` : `${kind} ${full(n)}`)).join(", ");

/** The count on the overview, which leads to the page. @param {{ process: import("./shapes").Overview["process"] }} props */
export function FailedFig({ process: { failed, turns } }) {
  const sum = Object.values(failed).reduce((a, n) => a + n, 0);
  return html`<${Fig} l="Failed" all c=${sum ? "warn" : ""} v=${html`<a class="u" href="#/failures" aria-label=${`${full(sum)} failed: see which`}>${full(sum)}</a>`} s=${sum ? kinds(failed) : `of ${count(turns, "request")} since the start`}/>`;
}

/** The failures of a session, or of all. @param {string} [session] */
export function useFailures(session) {
  const read = useRead((stop) => api.failures({ session, limit: ALL }, stop), [session]);
  const soon = useSoon(read.again, 500);
  useEvents((event) => {
    if (event.kind === "failed" && (!session || event.data.session === session)) soon();
  }, [session, soon]);
  return read;
}

/** What was said in an error's own field, or all of it. @param {string} said @returns {string} */
function messageOf(said) {
  try {
    const all = JSON.parse(said);
    const value = all?.response ?? all;
    const message = value?.error?.message ?? value?.message ?? value?.error;
    return typeof message === "string" ? message : said;
  } catch {
    return said;
  }
}

/** Why it failed, in a line. @param {Failure} f */
const lineOf = (f) => [f.code, f.said === null ? f.own : messageOf(f.said)].filter(Boolean).join(": ") || "nothing was said";

/** @param {{ f: Failure }} props */
const Got = ({ f }) => html`<span class=${`tag ${f.kind === "4xx" ? "warn" : "bad"}`}>${f.kind === "broken" ? "broke off" : f.status}</span>`;

/** How often calls were repeated, in few words. @param {{ f: Failure }} props */
const Retried = ({ f }) => (f.retried.length ? html`<span class="tag">tried again ${f.retried.length === 1 ? "once" : `${full(f.retried.length)} times`}</span>` : null);

/** A failed turn among a session's turns. @param {{ f: Failure, at: number }} props */
export function FailedRow({ f, at }) {
  const here = `#/failures?number=${f.number}`;
  return html`<tr class="lk" aria-rowindex=${at + 2} onClick=${() => go(here)}><td class="num dim">${f.turn ?? "–"}</td><td class="num dim c3" title=${dated(f.at)}>${clock(f.at)}</td>
    <td colspan="10" class="happened"><span class="tagsbox"><span class="dim">failed</span><${Got} f=${f}/><span class="c4"><${Retried} f=${f}/></span><a class="u ell" href=${here} onClick=${(/** @type {Event} */ e) => e.stopPropagation()}>${cut(lineOf(f), LINE)}</a></span></td></tr>`;
}

/**
 * Turns and failures, newest first. Both lists are in that order.
 * @param {number[]} turns places in the columns @param {(number | null)[]} ended @param {Failure[]} failed
 * @returns {(number | Failure)[]}
 */
export function among(turns, ended, failed) {
  const left = [...failed];
  /** @type {(number | Failure)[]} */
  const list = [];
  for (const i of turns) {
    while (left[0] && left[0].at > (ended[i] ?? 0)) list.push(/** @type {Failure} */ (left.shift()));
    list.push(i);
  }
  return [...list, ...left];
}

/** @param {{ f: Failure, content: string }} props */
function Opened({ f, content }) {
  const none = content === "live" ? "It said nothing that could be read." : "What it said is withheld by console.content.";
  return html`<div class="two half"><div><div class="sub cap">what the upstream said</div><pre class="code" tabindex="0">${f.said ?? none}</pre></div>
    <div><div class="sub cap">what was done</div><ol class="steps">${f.calls.map((call) => html`<li>${call.status === null ? "a call was not answered" : `a call was answered ${call.status}`}${call.request_id ? html` <span class="idm">${call.request_id}</span>` : null}</li>`)}
      ${f.retried.map((why) => html`<li>tried again: ${RETRIED[why] ?? why}</li>`)}${f.fail_open ? html`<li>the agent’s own request was sent (${f.fail_open.replaceAll("_", " ")})</li>` : null}
      <li>the agent got ${f.kind === "broken" ? "an answer that broke off" : f.status}</li></ol></div></div>
    ${f.own ? html`<p class="cap"><b>Plimsoll:</b> ${f.own}.</p>` : null}
    <div class="acts"><${Copy} text=${f.said ?? ""} disabled=${f.said === null}>Copy what was said<//>${f.listed && f.session ? html`<a class="btn sm" href=${linkOf(f)}>Turns of its session</a>` : null}</div>`;
}

/** @param {Failure} f */
const linkOf = (f) => to(nameOf({ session: f.session ?? "", tenant: f.tenant ?? "" }), "turns");

/** @param {{ f: Failure, open: boolean, content: string, toggle: () => void }} props */
function Row({ f, open, content, toggle }) {
  const name = f.session?.slice(0, 8) ?? "–";
  return html`<tr class=${`lk${open ? " sel" : ""}`} onClick=${toggle}><td class="nw"><button class="opener" aria-expanded=${open} title=${dated(f.at)}>${clock(f.at)}</button></td>
    <td><${Got} f=${f}/></td><td class="idm">${f.listed ? html`<a class="u" href=${linkOf(f)} onClick=${(/** @type {Event} */ e) => e.stopPropagation()}>${name}</a>` : name}</td>
    <td class="num wide">${f.turn ?? "–"}</td><td class="wide">${f.model ? cut(f.model, 40) : "–"}</td><td><span class="tagsbox"><${Retried} f=${f}/><span>${cut(lineOf(f), LINE)}</span></span></td></tr>
    ${open ? html`<tr class="inner"><td colspan="6"><${Opened} f=${f} content=${content}/></td></tr>` : null}`;
}

/** The page. */
export function Failures() {
  const read = useFailures();
  const [open, setOpen] = useState(Number(route().query["number"] ?? 0));
  const [most, setMost] = useState(open ? ALL : SOME);
  useEffect(() => {
    document.title = "Failed requests · Plimsoll";
    return () => {
      document.title = "Plimsoll";
    };
  }, []);
  const page = read.value;
  // Whoever came for one sees it.
  useEffect(() => document.querySelector("tr.sel")?.scrollIntoView({ block: "center" }), [Boolean(page)]);
  const list = page?.failures ?? [];
  const sum = page ? Object.values(page.failed).reduce((a, n) => a + n, 0) : 0;
  return html`<main id="main" tabindex="-1"><div class="shead"><div class="grow"><h1>Failed requests</h1>
    <div class="meta">${page ? html`<span>${full(sum)} since ${dated(page.since)}${sum ? `: ${kinds(page.failed)}` : ""}</span>${list.length < sum ? html`<span>the newest ${full(list.length)} are kept</span>` : null}` : html`<span>\u00a0</span>`}</div></div></div>
    <section class="panel" aria-label="Failed requests">${read.error ? html`<div class="pb"><${Failed} error=${read.error} again=${read.again}/></div>` : null}
      ${!page ? (read.error ? null : html`<${Waiting} what="the requests that failed"/>`)
        : list.length ? html`<div class="tw" tabindex="0" role="region" aria-label="Requests that failed"><table class="fails"><caption class="sr">Failed requests, newest first</caption><thead><tr><th scope="col">When</th><th scope="col">Got</th><th scope="col">Session</th><th class="num wide" scope="col">Turn</th><th class="wide" scope="col">Model</th><th scope="col">Why</th></tr></thead>
          <tbody>${list.slice(0, most).map((f) => html`<${Row} key=${f.number} f=${f} content=${page.content} open=${open === f.number} toggle=${() => setOpen(open === f.number ? 0 : f.number)}/>`)}</tbody></table></div>
          ${list.length > most ? html`<div class="pb"><button class="btn sm" onClick=${() => setMost(most + SOME)}>Show older</button></div>` : null}`
        : html`<div class="empty"><h2>${sum ? "None is kept" : "No request has failed"}</h2><p>Requests to models that fail stand here, with what the upstream said and what was tried again.</p></div>`}
      <div class="foot">What this process has seen since its start, in memory alone. Prometheus has the counts of all: <code>plimsoll_http_requests_total</code> by status, <code>plimsoll_upstream_requests_total</code> and <code>plimsoll_retries_total</code>.</div></section></main>`;
}

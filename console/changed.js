// What an agent changed of what its provider had cached: before and after, beside each other. Owns how the two are shown.
// Never finds a change: the server does.
import { html } from "./lib.js";
import { api } from "./api.js";
import { Failed, Waiting, useRead } from "./load.js";
import { to } from "./route.js";

/** @typedef {import("./session_data.js").Data} Data */

/** @type {Record<string, string>} */
const PARTS = { client_system: "the system text", client_tools: "the tools", client_history: "the history" };

/** JSON as it was sent, with its line breaks and quotes as a person reads them. @param {string} json */
const read = (json) => json.replaceAll("\\n", "\n").replaceAll("\\t", "\t").replaceAll('\\"', '"');

/** @param {{ d: Data, turn: number, close: () => void }} props */
export function Changed({ d, turn, close }) {
  const answer = useRead((stop) => api.changes(d.name, stop), [d.name, turn]);
  const change = answer.value?.changes.find((one) => one.turn === turn);
  const side = (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ kind) => html`<div class="side"><h3>${name}</h3>
    <pre class="code" tabindex="0"><span class="dim">${change ? read(change.same) : ""}</span>${text ? html`<mark class=${kind}>${read(text)}</mark>` : html`<mark class=${kind}>∅</mark>`}<span class="dim">${change ? read(change.behind) : ""}</span></pre></div>`;
  return html`<section class="panel" aria-label="What changed"><div class="ph"><h2>What changed before turn ${turn}</h2>${change ? html`<span class="dim">in ${PARTS[change.cause]}, as the agent sent it: from here on the provider’s cache did not match</span>` : null}<span class="grow"></span><button class="btn sm" onClick=${close}>Close</button></div>
    ${answer.error ? html`<div class="pb"><${Failed} error=${answer.error} again=${answer.again}/></div>` : !answer.value ? html`<${Waiting} rows=${2} what="what changed"/>`
      : change ? html`<div class="pb sides">${side("Before", change.before, "was")}${side("After", change.after, "is")}</div>`
      : html`<div class="pb dim">It is not in memory: the newest eight changes of a session are kept, as long as its newest request is. <a class="u" href=${to(d.name, "view", { turn })}>The view at turn ${turn}</a> has what was sent.</div>`}</section>`;
}

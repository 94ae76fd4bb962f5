// What a person asks of a session: a pass, an eviction, a recall, a pin. What costs something is asked for only after the price was
// said. Owns these buttons and their words. Never decides whether it may be done: the server does.
import { html, useRef, useState } from "./lib.js";
import { api } from "./api.js";
import { known, short, usd } from "./format.js";
import { Note, useAction } from "./load.js";
import { Copy, Icon } from "./parts.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Waits} Waits */
/** @typedef {import("./lib.js").Shown} Shown */

/** What doing it at the next request costs, as the end of a sentence. @param {Waits["cost"]} cost */
function costOf(cost) {
  const money = known(cost.usd) ? `at most ${usd(cost.usd)}` : known(cost.units) ? `at most ${short(cost.units)} units` : "an amount that is not known";
  return known(cost.tokens) ? `${money}: the provider reads up to ${short(cost.tokens)} tokens anew` : money;
}

/**
 * Words that stand while something waits, and no longer: the server says when it is done.
 * @param {Data} d @param {boolean} waits
 */
function useNoted(d, waits) {
  const [noted, set] = useState(/** @type {{ of: Data["session"], words: string, now: boolean } | null} */ (null));
  // What was just asked for is not yet in the session as the page has it.
  const stands = noted !== null && (waits || noted.of === d.session);
  return { words: stands ? noted.words : null, now: noted?.now ?? false, note: (/** @type {string} */ words, now = true) => set({ of: d.session, words, now }) };
}

/** A pass down to the floor: first what it would cost, then the pass. @param {{ d: Data, off: boolean }} props */
export function EvictNow({ d, off }) {
  const action = useAction();
  const [price, offer] = useState(/** @type {Waits | null} */ (null));
  const noted = useNoted(d, d.session.waiting.evict);
  const button = useRef(/** @type {HTMLElement | null} */ (null));
  const ask = (/** @type {boolean} */ now) => action.run(async () => {
    const asked = await api.evict(d.name, { now });
    offer(now ? null : asked);
    if (!now) return null;
    d.again();
    noted.note(`Noted, and not yet done: a pass down to the floor with ${asked.from}.`);
    return null;
  });
  const cancel = () => { offer(null); button.current?.focus(); };
  return html`<div class="asknow"><button class="btn" ref=${button} disabled=${off || action.busy} onClick=${() => ask(false)}>Evict …</button>${action.said}${price ? html`<${Note}>A pass at the next request takes out ${known(price.tokens) ? `at most ${short(price.tokens)} tokens` : "what it may"} and costs ${costOf(price.cost)}. To wait until a pass is due costs nothing more.
    <div class="acts"><button class="btn sm pri" disabled=${off || action.busy} onClick=${() => ask(true)}>Evict at the next request</button><button class="btn sm" onClick=${cancel}>Cancel</button></div><//>` : noted.words ? html`<${Note}>${noted.words}<//>` : null}</div>`;
}

/** Withdraws what is asked of an item or an episode. @param {Data} d @param {ReturnType<typeof useAction>} action @param {string} id */
export const takeBack = (d, action, id) => action.run(async () => {
  await api.withdraw(d.name, [id]);
  d.again();
  return `Taken back: ${id} stays as it is.`;
});

/**
 * What can be asked of one item, what comes of it, and what it costs to have it at the next request.
 * @typedef {{ ask: typeof api.evict, waits: "evictions" | "recalls", verb: string, title: string, does: string, noted: string, price: (asked: Waits) => string }} Kind
 */
const EVICT = /** @type {Kind} */ ({
  ask: api.evict, waits: "evictions", verb: "Evict", title: "Leaves the view with the next pass, which takes it first", does: "leaves the view", noted: "Eviction noted",
  price: (asked) => `takes out at most ${short(asked.tokens)} tokens and costs ${costOf(asked.cost)}`,
});
const RECALL = /** @type {Kind} */ ({
  ask: api.recall, waits: "recalls", verb: "Recall", title: "Brings the original back for the model, at the end of what it reads", does: "comes back", noted: "Recall noted",
  price: (asked) => `adds at most ${short(asked.tokens)} tokens and costs ${known(asked.cost.usd) ? usd(asked.cost.usd) : `${short(asked.cost.units)} units`}`,
});

/**
 * Asks something of an item or an episode: it waits for the next pass, and then has a button that has it done at the
 * next request, with the price of that, and one that takes it back. Once it is done, no more is said of it.
 * @param {{ kind: Kind, d: Data, off: boolean, id: string, children: Shown }} props
 */
function AskOf({ kind, d, off, id, children }) {
  const action = useAction();
  const waits = d.session.waiting[kind.waits].some((one) => one.toLowerCase() === id.toLowerCase());
  const noted = useNoted(d, waits);
  // Made anew each time it is drawn, so that it is off while the server is silent.
  const button = (/** @type {string} */ words, /** @type {() => void} */ click, pri = "") => html`<button class=${`btn sm${pri}`} disabled=${off || action.busy} onClick=${click}>${words}</button>`;
  const back = () => button("Take it back", () => takeBack(d, action, id));
  const ask = (/** @type {boolean} */ now) => action.run(async () => {
    const asked = await kind.ask(d.name, { items: [id], now });
    d.again();
    noted.note(`Noted, and not yet done: ${id} ${kind.does} with ${asked.from}.${now ? "" : ` Sooner, at the next request, it ${kind.price(asked)}.`}`, now);
    return null;
  });
  const words = noted.words && html`<${Note}>${noted.words}<div class="acts">${noted.now ? null : button(`${kind.verb} ${id} at the next request`, () => ask(true), " pri")}${back()}</div><//>`;
  return html`<div class="asknow"><button class="btn sm" disabled=${off || action.busy} title=${kind.title} onClick=${() => ask(false)}>${waits ? kind.noted : children}</button>${action.said ?? words ?? (waits ? back() : null)}</div>`;
}

/** That an item or an episode leaves the view. @param {{ d: Data, off: boolean, id: string, children?: Shown }} props */
export const EvictItem = ({ d, off, id, children = "Evict" }) => html`<${AskOf} kind=${EVICT} d=${d} off=${off} id=${id}>${children}<//>`;
/** That an original comes back into view. @param {{ d: Data, off: boolean, id: string }} props */
export const RecallItem = ({ d, off, id }) => html`<${AskOf} kind=${RECALL} d=${d} off=${off} id=${id}>Recall into view<//>`;

/** Pins an item or an episode, or unpins it. @param {Data} d @param {ReturnType<typeof useAction>} action @param {string} id @param {boolean} pinned */
export const setPin = (d, action, id, pinned) => action.run(async () => {
  const asked = pinned ? await api.pin(d.name, [id]) : await api.unpin(d.name, [id]);
  d.again();
  return `${id} is ${pinned ? "pinned" : "no longer pinned"} from ${asked.from} on.`;
});

/** @param {{ d: Data, off: boolean, id: string, pinned: boolean }} props */
export function PinButton({ d, off, id, pinned }) {
  const action = useAction();
  const ask = () => setPin(d, action, id, !pinned);
  return html`<div class="asknow"><button class="btn sm" disabled=${off || action.busy} title="Keeps in view what the model still reads of it" onClick=${ask}><${Icon} n="pin" s=${12}/>${pinned ? "Unpin" : "Pin"}</button>${action.said}</div>`;
}

/** Words for the agent that have the model bring an original back. @param {{ id: string }} props */
export const RecallWords = ({ id }) => html`<${Copy} text=${`Call the tool recall with the id "${id}".`}>Copy a line that has the model recall it<//>`;

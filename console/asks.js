// What a person asks of a session: a pass, an eviction, a recall, a pin. What costs something is asked for only after the price was
// said. Owns these buttons and their words. Never decides whether it may be done: the server does.
import { html } from "./lib.js";
import { api } from "./api.js";
import { known, short, usd } from "./format.js";
import { useAction } from "./load.js";
import { Copy, Icon } from "./parts.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Waits} Waits */

/** What doing it at the next request costs, in words. @param {Waits["cost"]} cost */
export function costOf(cost) {
  const money = known(cost.usd) ? usd(cost.usd) : known(cost.units) ? `${short(cost.units)} units` : null;
  if (!known(cost.tokens)) return money ?? "what it would cost is not known";
  return `at most ${short(cost.tokens)} tokens read anew${money ? `, ${money}` : ""}`;
}

/** A pass down to the floor: first what it would cost, then the pass. @param {{ d: Data, off: boolean }} props */
export function EvictNow({ d, off }) {
  const action = useAction();
  const ask = (/** @type {boolean} */ now) => action.run(async () => {
    const asked = await api.evict(d.name, { now });
    if (now) d.again();
    if (now) return `A pass down to the floor is noted: ${asked.from}.`;
    return html`A pass at the next request takes out ${known(asked.tokens) ? `at most ${short(asked.tokens)} tokens` : "what it may"}. Beside a pass when one is due, it costs ${costOf(asked.cost)}.
      <div class="acts"><button class="btn sm pri" onClick=${() => ask(true)}>Evict at the next request</button></div>`;
  });
  return html`<div class="asknow"><button class="btn" disabled=${off || action.busy} onClick=${() => ask(false)}>Evict …</button>${action.said}</div>`;
}

/** Withdraws what is asked of an item or an episode. @param {Data} d @param {ReturnType<typeof useAction>} action @param {string} id */
export const takeBack = (d, action, id) => action.run(async () => {
  await api.withdraw(d.name, [id]);
  d.again();
  return `Taken back: ${id} stays as it is.`;
});

/**
 * What is noted and not yet done: a button that has it done at the next request, for its price, and one that takes it
 * back.
 * @param {Data} d @param {ReturnType<typeof useAction>} action @param {string} id
 * @param {{ does: string, from: string, sooner?: [string, string, () => void] }} words what comes of it and when; what
 * doing it sooner costs, and the button for that
 */
function notYet(d, action, id, { does, from, sooner }) {
  return html`Noted, and not yet done: ${id} ${does} with ${from}.${sooner ? ` Sooner, at the next request, it ${sooner[0]}.` : ""}
    <div class="acts">${sooner ? html`<button class="btn sm pri" onClick=${sooner[2]}>${sooner[1]}</button>` : null}<button class="btn sm" onClick=${() => takeBack(d, action, id)}>Take it back</button></div>`;
}

/**
 * That an item or an episode leaves the view: it waits for the next pass, and then has a button that has it done
 * at the next request, with the price of that.
 * @param {{ d: Data, off: boolean, id: string, children?: import("./lib.js").Shown }} props
 */
export function EvictItem({ d, off, id, children = "Evict" }) {
  const action = useAction();
  const ask = (/** @type {boolean} */ now) => action.run(async () => {
    const asked = await api.evict(d.name, { items: [id], now });
    d.again();
    const price = `takes out at most ${short(asked.tokens)} tokens and costs ${costOf(asked.cost)}`;
    return notYet(d, action, id, { does: "leaves the view", from: asked.from, ...(now ? {} : { sooner: [price, `Evict ${id} at the next request`, () => ask(true)] }) });
  });
  return html`<div class="asknow"><button class="btn sm" disabled=${off || action.busy} onClick=${() => ask(false)}>${children}</button>${action.said}</div>`;
}

/** Pins an item or an episode, or unpins it. @param {Data} d @param {ReturnType<typeof useAction>} action @param {string} id @param {boolean} pinned */
export const setPin = (d, action, id, pinned) => action.run(async () => {
  const asked = pinned ? await api.pin(d.name, [id]) : await api.unpin(d.name, [id]);
  d.again();
  return `${id} is ${pinned ? "pinned" : "no longer pinned"} ${asked.from}.`;
});

/** @param {{ d: Data, off: boolean, id: string, pinned: boolean }} props */
export function PinButton({ d, off, id, pinned }) {
  const action = useAction();
  const ask = () => setPin(d, action, id, !pinned);
  return html`<div class="asknow"><button class="btn sm" disabled=${off || action.busy} title="Keeps in view what the model still reads of it" onClick=${ask}><${Icon} n="pin" s=${12}/>${pinned ? "Unpin" : "Pin"}</button>${action.said}</div>`;
}

/**
 * That an original comes back into view: with the turn of the next pass, or at the next request for its price.
 * @param {{ d: Data, off: boolean, id: string }} props
 */
export function RecallItem({ d, off, id }) {
  const action = useAction();
  const ask = (/** @type {boolean} */ now) => action.run(async () => {
    const asked = await api.recall(d.name, { items: [id], now });
    d.again();
    const price = `adds at most ${short(asked.tokens)} tokens and costs ${known(asked.cost.usd) ? usd(asked.cost.usd) : `${short(asked.cost.units)} units`}`;
    return notYet(d, action, id, { does: "comes back", from: asked.from, ...(now ? {} : { sooner: [price, `Recall ${id} at the next request`, () => ask(true)] }) });
  });
  const waits = d.session.waiting.recalls.includes(id);
  return html`<div class="asknow"><button class="btn sm" disabled=${off || action.busy} title="Brings the original back for the model, at the end of what it reads" onClick=${() => ask(false)}>${waits ? "Recall noted" : "Recall into view"}</button>${action.said}${waits && !action.said && !action.busy ? html`<button class="btn sm" disabled=${off} onClick=${() => takeBack(d, action, id)}>Take it back</button>` : null}</div>`;
}

/** Words for the agent that have the model bring an original back. @param {{ id: string }} props */
export const RecallWords = ({ id }) => html`<${Copy} text=${`Call the tool recall with the id "${id}".`}>Copy a line that has the model recall it<//>`;

// One item: what became of it turn by turn, why, both of its texts, and what can be done with it. Owns the
// panel beside the view. Never holds a text after it is closed.
import { html, useEffect, useRef } from "./lib.js";
import { api } from "./api.js";
import { EvictItem, PinButton, RecallItem, RecallWords } from "./asks.js";
import { full } from "./format.js";
import { arrives, isRecall, markAt, sizeAt } from "./history.js";
import { Failed, useRead } from "./load.js";
import { Ball, Copy, EpTag, NeedText, isWatched } from "./parts.js";
import { to } from "./route.js";

/** @typedef {import("./session_data.js").Data} Data */
/** @typedef {import("./shapes").Item} Item */

const NONE = {
  withheld: "Its text is withheld by console.content.",
  none: "Its text is neither in memory nor stored.",
  live: "It has no text of its own.",
  stored: "It has no text of its own.",
};

/** @param {{ d: Data, item: Item, turn: number, off: boolean, close: () => void }} props */
export function ItemPanel({ d, item, turn, off, close }) {
  const read = useRead((stop) => api.item(d.name, item.no, turn, stop), [d.name, item.no, turn]);
  const panel = useRef(/** @type {HTMLElement | null} */ (null));
  const detail = read.value;
  const episode = item.episode === null ? null : d.session.episodes[item.episode];
  const now = markAt(item, d.session.row.turn);
  const evicted = now !== "live";
  const stands = (now === "live" || now === "clipped") && (item.role === "call" || item.role === "assistant" || isRecall(item));
  const none = detail ? NONE[detail.content] : "…";
  const original = detail?.original ?? null;
  useEffect(() => { if (innerWidth <= 720) panel.current?.focus(); }, []);
  return html`<aside class="panel sheet" aria-label=${`Item ${item.id}`} tabindex="-1" ref=${panel}><div class="ph"><h2 class="idm">${item.id}</h2>${episode ? html`<${EpTag} e=${episode}/>` : null}${item.pinned ? html`<span class="pill">pinned</span>` : null}<span class="grow"></span><button class="btn ghost sm" aria-label="Close" onClick=${close}>×</button></div>
    <div class="pb">${item.label ? html`<p class="mid">${item.label}</p>` : null}
    <table class="hist"><caption class="sr">What became of it</caption><tbody><tr><td class="dim">turn ${arrives(item)}</td><td><span class="mv"><${Ball} m="live"/> live</span></td><td class="num">${full(item.tokens)}</td></tr>
      ${item.marks.map(([t, mark]) => html`<tr key=${`${t}${mark}`} class=${t > turn ? "later" : ""}><td><a class="u" href=${to(d.name, "evictions", { pass: t, item: item.id })}>turn ${t}, pass</a></td><td><span class="mv"><${Ball} m=${mark}/> ${mark}</span></td><td class="num">${full(sizeAt(item, t))}</td></tr>`)}</tbody></table>
    ${read.error ? html`<${Failed} error=${read.error} again=${read.again}/>` : html`<p class="whyline"><b>Why:</b> ${detail ? detail.reason : "…"}</p>`}
    ${item.needed ? html`<p><${NeedText} n=${item.needed}/></p>` : null}
    <div class="acts">
      ${item.role === "hidden" ? null : html`<${PinButton} d=${d} off=${off} id=${item.id} pinned=${item.pinned}/>`}
      ${stands ? html`<${EvictItem} d=${d} off=${off} id=${item.id}/>` : null}
      ${episode && episode.end !== null && episode.gone === null && item.role !== "user" ? html`<${EvictItem} d=${d} off=${off} id=${episode.name}>Evict its episode<//>` : null}
      <${Copy} text=${original ?? ""} disabled=${original === null}>Copy original<//>
      ${evicted && item.role !== "hidden" ? html`<${RecallItem} d=${d} off=${off} id=${item.id}/><${RecallWords} id=${item.id}/>` : null}</div>
    ${detail?.arguments ? html`<div class="sub cap">arguments</div><pre class="code" tabindex="0">${detail.arguments}</pre>` : null}
    <div class="sub cap">original</div><pre class="code" tabindex="0">${original ?? none}</pre>
    ${detail?.shown ? html`<div class="sub cap">what the model ${isWatched(d.session.row) ? "would have been" : "was"} sent in its place</div><pre class="code" tabindex="0">${detail.shown}</pre>` : null}</div></aside>`;
}

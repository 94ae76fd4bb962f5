// The page: the top bar, which view is shown, the theme, the keys that work everywhere, and the banner when
// the server is silent. Owns these. Never reads a session.
import { html, render, useEffect, useKeys, useRef, useState } from "./lib.js";
import { Failures } from "./failures.js";
import { clock } from "./format.js";
import { listen, retry, useLink } from "./live.js";
import { Overview } from "./overview.js";
import { Glyph, Icon } from "./parts.js";
import { useRoute } from "./route.js";
import { Session } from "./session.js";
import { api } from "./api.js";

/** The theme that a person chose, or none: then the system's. */
const chosen = localStorage.getItem("plimsoll-theme");
if (chosen) document.documentElement.dataset["theme"] = chosen;

function turnTheme() {
  const root = document.documentElement;
  const dark = root.dataset["theme"] ? root.dataset["theme"] === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset["theme"] = dark ? "light" : "dark";
  localStorage.setItem("plimsoll-theme", root.dataset["theme"]);
}

const CONTENT = {
  live: "Titles and texts are shown, of live sessions and stored content",
  stored: "Titles and texts are shown where content is stored",
  off: "Titles, labels, findings and texts are withheld",
};

/** @param {{ since: number }} props */
function Lost({ since }) {
  const [now, tick] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => tick(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.max(0, Math.round((now - since) / 1000));
  return html`<div class="lost"><div class="ins bad" role="alert"><${Icon} n="warn" s=${15}/><div><b>No word from the server.</b> <span aria-live="off">What you see is of ${clock(since)}, ${seconds} s ago.</span> Trying again by itself.</div><button class="btn sm" onClick=${retry}>Now</button></div></div>`;
}

function App() {
  const at = useRoute();
  const link = useLink();
  const [server, setServer] = useState(/** @type {import("./shapes").Server | null} */ (null));
  const [title, setTitle] = useState("");
  useEffect(() => {
    // A page that opens at a session knows nothing of the server yet.
    if (!server) api.overview().then((all) => setServer(all.server), () => undefined);
  }, []);
  const moved = useRef(false);
  useEffect(() => {
    // A page that has just opened is read from its top.
    if (!moved.current) {
      moved.current = true;
      return;
    }
    setTitle("");
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [at.session, at.page]);
  useKeys((event) => {
    if (event.key !== "/") return;
    event.preventDefault();
    const find = document.getElementById("find");
    if (find) find.focus();
    else {
      location.hash = "#/";
      setTimeout(() => document.getElementById("find")?.focus(), 50);
    }
  });
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
  <header class="top"><a class="brand" href="#/" aria-label="Plimsoll, overview"><${Glyph}/><span>Plimsoll</span></a>
    <nav class="crumb" aria-label="Where you are"><a href="#/" aria-current=${at.session || at.page ? null : "page"}>Overview</a>${at.page ? html`<span class="dim">/</span><span class="ell" aria-current="page">Failed requests</span>` : null}${at.session ? html`<span class="dim">/</span><span class="ell" aria-current="page">${title || at.session.slice(0, 8)}</span>` : null}</nav>
    <div class="pills"><span class=${`pill${link.on ? " live" : " bad"}`} role="status"><span class=${`dot${link.on ? "" : " off"}`}></span>${link.on ? "live" : "lost"}</span>
      ${server ? html`<span class="pill wide" title=${CONTENT[server.content]}>content: ${server.content}</span><span class="pill wide" title=${`Plimsoll ${server.version}`}>${server.agents.replace(/^https?:\/\//, "")}</span>` : null}
      <button class="btn ghost sm" aria-label="Turn light or dark" onClick=${turnTheme}><${Icon} n="theme" s=${15}/></button></div></header>
  ${link.on ? null : html`<${Lost} since=${link.since}/>`}
  <div class=${link.on ? "" : "stale"}>${at.page ? html`<${Failures} key=${at.visit}/>` : at.session === null ? html`<${Overview} server=${setServer}/>` : html`<${Session} key=${at.session} name=${at.session} view=${at.view} visit=${at.visit} off=${!link.on} said=${setTitle}/>`}</div>`;
}

const root = document.getElementById("app");
if (root) {
  root.textContent = "";
  listen();
  render(html`<${App}/>`, root);
}

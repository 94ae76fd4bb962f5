"use strict";
// Draws the page from the figures that stand in it. Loads nothing, and keeps nothing.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const esc = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const col = (key) => data.figures.indexOf(key);
  const ours = "cwl";

  const whole = (n) => Math.round(n).toLocaleString("en");
  const short = (n) => n >= 1e6 ? (n / 1e6).toFixed(n >= 1e8 ? 0 : 2) + "M"
    : n >= 1e4 ? Math.round(n / 1e3) + "k" : n >= 1e3 ? (n / 1e3).toFixed(1) + "k" : whole(n);
  const fine = (n) => n.toFixed(4);
  const share = (n) => (100 * n).toFixed(1) + "%";
  // key, head, how it is shown, whether more is better (0: neither), what it means
  const FIGURES = [
    ["retention_visible", "K", fine, 1, "distinctive strings that calls needed and that were still visible"],
    ["retention_recoverable", "K + named", fine, 1, "the same, and those that the view names by item or episode"],
    ["retention_lines", "L", fine, 1, "whole lines that calls needed and that were still visible"],
    ["retention_passages", "P", fine, 1, "passages of four words that answers repeated and that were still visible, rare ones weighing more"],
    ["cost", "cost", short, -1, "input, and what the policy had a model write, in plain input tokens"],
    ["tokens_sent", "sent", short, -1, "tokens of all requests"],
    ["cached_share", "cached", share, 1, "share of the input that the provider's cache held"],
    ["peak", "peak", whole, -1, "tokens of the largest request"],
    ["over_ceiling", "over τ", whole, -1, "requests above the ceiling"],
    ["prune_rate", "pruned", share, 0, "mean share cut from requests that would have been above the ceiling"],
    ["passes", "passes", whole, -1, "times that items were taken out of the view"],
    ["prefix_breaks", "breaks", whole, -1, "requests that did not extend the one before"],
    ["no_impact_rate", "no impact", fine, 1, "passes after which nothing was missed that they took"],
    ["refetches", "again", whole, -1, "calls made again though an evicted one was the same"],
    ["requests", "requests", whole, 0, "answers in the recording"],
    ["us_per_request", "µs", whole, -1, "time of the policy's part of a request"],
  ].filter(([key]) => col(key) >= 0);
  const figure = (key) => FIGURES.find((f) => f[0] === key);

  const DASH = { "none": "6 3", "cwl-paper": "7 2 2 2", "compaction": "4 3", "keep-recent": "2 2", "three-tier": "8 3", "hybrid": "1 2" };
  // Of several policies that run together the last one evicts; each rung before it shades its colour.
  const colour = (name) => name.split("+").reduce((mixed, rung, at) => {
    const own = `var(--${rung.split("@")[0]}, var(--cwl))`;
    return at ? `color-mix(in srgb, ${mixed} 35%, ${own})` : own;
  }, "");
  const dash = (name) => DASH[name] ? ` stroke-dasharray="${DASH[name]}"` : "";
  const state = { session: 0, ceiling: 0, scope: "all", measure: FIGURES[0][0], figure: "cost", sort: {} };
  const first = [ours, "none", "cwl-paper", "recency"].filter((name) => data.policies.includes(name));
  const shown = new Set(first.length > 1 ? first : data.policies);

  // ---- scales ----
  const nice = (low, high, count) => {
    const step0 = (high - low || 1) / count;
    const power = 10 ** Math.floor(Math.log10(step0));
    const step = power * [1, 2, 2.5, 5, 10].find((m) => m * power >= step0 * 0.999);
    const ticks = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) ticks.push(+(n * step).toPrecision(12));
    let digits = 0;
    while (digits < 6 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-9) digits += 1;
    return { ticks, digits };
  };
  const scale = (low, high, from, to) => (v) => from + (to - from) * (v - low) / (high - low || 1);
  const BOX = { w: 1040, h: 420, l: 74, r: 110, t: 18, b: 52 };
  const frame = (box, x, y) => {
    const right = box.w - box.r, bottom = box.h - box.b;
    let out = "";
    for (const tick of y.ticks) {
      const py = y.of(tick);
      out += `<line class="grid" x1="${box.l}" x2="${right}" y1="${py}" y2="${py}"/><text x="${box.l - 8}" y="${py + 4}" text-anchor="end">${y.show(tick)}</text>`;
    }
    for (const tick of x.ticks) {
      const px = x.of(tick);
      out += `<line class="axis" x1="${px}" x2="${px}" y1="${bottom}" y2="${bottom + 5}"/><text x="${px}" y="${bottom + 19}" text-anchor="middle">${x.show(tick)}</text>`;
    }
    out += `<line class="axis" x1="${box.l}" x2="${right}" y1="${bottom}" y2="${bottom}"/>`;
    out += `<text x="${(box.l + right) / 2}" y="${box.h - 10}" text-anchor="middle">${x.name}</text>`;
    out += `<text transform="translate(16 ${(box.t + bottom) / 2}) rotate(-90)" text-anchor="middle">${y.name}</text>`;
    return out;
  };
  const svg = (box, label, body) =>
    `<svg viewBox="0 0 ${box.w} ${box.h}" role="img" aria-label="${esc(label)}">${body}</svg>`;

  // ---- tooltip ----
  const tip = at("tip");
  const tell = (event, html) => {
    tip.innerHTML = html;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const spot = event.clientX === undefined || event.type === "focusin" ? event.target.getBoundingClientRect() : { right: event.clientX, bottom: event.clientY, left: event.clientX };
    const left = spot.right + 14 + box.width > innerWidth ? spot.left - 14 - box.width : spot.right + 14;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, Math.min(spot.bottom + 12, innerHeight - box.height - 4)) + "px";
  };
  const hush = () => { tip.hidden = true; };
  const rowsOf = (pairs) => `<table>${pairs.map(([a, b]) => `<tr><td>${a}</td><td>${b}</td></tr>`).join("")}</table>`;

  // ---- cost against retention ----
  const rows = (scope) => scope === "all" ? data.total : data.sessions[state.session].rows;
  const drawFront = () => {
    const box = BOX, [key, , show] = figure(state.measure), cost = col("cost"), kept = col(key);
    const all = rows(state.scope);
    const none = data.policies.indexOf("none");
    const unit = none >= 0 ? all[none][cost] : 1e6;
    const points = data.policies.map((name, i) => ({ name, x: all[i][cost] / unit, y: all[i][kept], row: all[i] }));
    const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
    const pad = (low, high, part) => [low - (high - low || Math.abs(high) || 1) * part, high + (high - low || Math.abs(high) || 1) * part];
    const [x0, x1] = pad(Math.min(...xs), Math.max(...xs), 0.06), [y0, y1] = pad(Math.min(...ys), Math.max(...ys), 0.08);
    const low = Math.max(0, x0), top = Math.min(1.004 + 0.02 * (1 - y0), y1);
    const X = { ...nice(low, x1, 8), of: scale(low, x1, box.l, box.w - box.r), name: none >= 0 ? "cost, × of sending everything (none = 1)" : "cost, millions of plain input tokens" };
    const Y = { ...nice(y0, Math.min(1, top), 6), of: scale(y0, top, box.h - box.b, box.t), name: `share of what calls needed (${figure(key)[1]})` };
    X.show = (v) => v.toFixed(X.digits);
    Y.show = (v) => v.toFixed(Y.digits);
    let best = -Infinity;
    const front = [...points].sort((a, b) => a.x - b.x || b.y - a.y).filter((p) => p.y > best && ((best = p.y), true));
    let path = "";
    front.forEach((p, i) => { path += i === 0 ? `M${X.of(p.x)} ${Y.of(p.y)}` : `H${X.of(p.x)}V${Y.of(p.y)}`; });
    let body = frame(box, X, Y) + `<path class="front" d="${path}"/>`;
    const taken = points.map((p) => [X.of(p.x) - 8, Y.of(p.y) - 8, X.of(p.x) + 8, Y.of(p.y) + 8]);
    const over = col("over_ceiling");
    let dots = "";
    points.forEach((p, i) => {
      const px = X.of(p.x), py = Y.of(p.y), spot = place(px, py, p.name, taken, box);
      if (spot.far) dots += `<line class="leader" x1="${px}" y1="${py}" x2="${spot.edge}" y2="${spot.y - 4}"/>`;
      dots += `<text class="name" x="${spot.x}" y="${spot.y}" text-anchor="${spot.anchor}" style="fill:${colour(p.name)}">${esc(p.name)}</text>`;
      const fill = p.row[over] > 0.1 * p.row[col("requests")] ? "var(--page)" : colour(p.name);
      dots += `<circle class="dot" tabindex="0" data-at="${i}" cx="${px}" cy="${py}" r="${p.name === ours ? 7.5 : 6}" style="fill:${fill};stroke:${colour(p.name)}"><title>${esc(p.name)}: ${show(p.y)} kept</title></circle>`;
    });
    at("front").innerHTML = svg(box, `Cost against retention: ${points.map((p) => `${p.name} ${p.x.toFixed(2)}, ${show(p.y)}`).join("; ")}`, body + dots);
    at("front").querySelectorAll(".dot").forEach((dot) => {
      dot.querySelector("title").remove();
      dot.setAttribute("aria-label", points[dot.dataset.at].name);
      const say = (event) => {
        const p = points[dot.dataset.at];
        const pairs = FIGURES.slice(0, 10).map(([k, head, how]) => [head, how(p.row[col(k)])]);
        if (none >= 0) pairs.splice(4, 0, ["cost ÷ none", p.x.toFixed(3)]);
        tell(event, `<b>${esc(p.name)}</b>${front.includes(p) ? ", on the front" : ""}${rowsOf(pairs)}`);
      };
      dot.addEventListener("pointermove", say);
      dot.addEventListener("focusin", say);
      dot.addEventListener("pointerleave", hush);
      dot.addEventListener("focusout", hush);
    });
  };
  // A place for a label that covers no point and no other label.
  const place = (px, py, text, taken, box) => {
    const w = text.length * 6.9, h = 13;
    const tries = [];
    for (const d of [12, 26, 42, 60, 80]) {
      const s = d * 0.75;
      tries.push([px + d, py + 4, "start"], [px - d, py + 4, "end"], [px, py - d, "middle"], [px, py + d + 8, "middle"],
        [px + s, py - s, "start"], [px + s, py + s + 8, "start"], [px - s, py - s, "end"], [px - s, py + s + 8, "end"]);
    }
    const rect = ([x, y, anchor]) => { const l = anchor === "start" ? x : anchor === "end" ? x - w : x - w / 2; return [l, y - h + 2, l + w, y + 3]; };
    const free = (r) => r[0] > box.l && r[2] < box.w && r[1] > 0 && r[3] < box.h - box.b && taken.every((t) => r[2] < t[0] || r[0] > t[2] || r[3] < t[1] || r[1] > t[3]);
    const spot = tries.find((t) => free(rect(t))) || tries[0];
    taken.push(rect(spot));
    const r = rect(spot);
    return { x: spot[0], y: spot[1], anchor: spot[2], far: Math.hypot(spot[0] - px, spot[1] - py) > 22, edge: spot[2] === "start" ? r[0] : spot[2] === "end" ? r[2] : spot[0] };
  };

  // ---- tokens per request ----
  const unpack = (packed) => packed[1].map((y, i) => [packed[0].length ? packed[0][i] : i + 1, y]);
  const drawSeries = () => {
    const box = BOX, session = data.sessions[state.session], ceiling = data.settings.ceilings[state.ceiling];
    const lines = data.policies.map((name, i) => ({ name, i })).filter(({ name }) => shown.has(name))
      .map(({ name, i }) => ({ name, points: unpack(session.series[state.ceiling][i] || session.client), passes: session.passes[state.ceiling][i] }));
    const client = unpack(session.client);
    const most = Math.max(ceiling, ...lines.flatMap((line) => line.points.map((p) => p[1])));
    const last = session.requests;
    const X = { ...nice(1, last, 10), of: scale(1, Math.max(2, last), box.l, box.w - box.r), show: whole, name: "request" };
    X.ticks = [1, ...X.ticks.filter((t) => t > 1 && Number.isInteger(t))];
    const Y = { ...nice(0, most * 1.03, 6), of: scale(0, most * 1.03, box.h - box.b, box.t), show: short, name: "tokens sent" };
    let body = frame(box, X, Y);
    const tau = Y.of(ceiling);
    body += `<line class="tau" x1="${box.l}" x2="${box.w - box.r}" y1="${tau}" y2="${tau}"/>`;
    const ends = [];
    [...lines].sort((a, b) => (a.name === ours) - (b.name === ours)).forEach((line) => {
      const d = line.points.map((p, i) => `${i ? "L" : "M"}${X.of(p[0]).toFixed(1)} ${Y.of(p[1]).toFixed(1)}`).join("");
      body += `<path class="line${line.name === ours ? " ours" : ""}" style="stroke:${colour(line.name)}" d="${d}"${dash(line.name)}/>`;
      const marks = line.passes.map(([x, y]) => { const px = X.of(x), py = Y.of(y); return `M${(px - 4).toFixed(1)} ${(py - 8).toFixed(1)}h8l-4 6z`; }).join("");
      body += `<path style="fill:${colour(line.name)}" d="${marks}"/>`;
      const end = line.points[line.points.length - 1];
      if (end) ends.push({ name: line.name, y: Y.of(end[1]) });
    });
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { end.at = Math.max(end.y, i ? ends[i - 1].at + 14 : 10); });
    for (let i = ends.length - 1; i >= 0; i -= 1) {
      const limit = i === ends.length - 1 ? box.h - box.b : ends[i + 1].at - 14;
      ends[i].at = Math.min(ends[i].at, limit);
    }
    for (const end of ends) body += `<text class="name" x="${box.w - box.r + 8}" y="${end.at + 4}" style="fill:${colour(end.name)}">${esc(end.name)}</text>`;
    body += `<text class="tau-name" x="${box.l + 6}" y="${tau - 5}">τ = ${whole(ceiling)}</text>`;
    body += `<line class="cross" id="cross" y1="${box.t}" y2="${box.h - box.b}" visibility="hidden"/>`;
    const chart = at("series");
    chart.innerHTML = svg(box, `Tokens per request of ${session.name} at a ceiling of ${ceiling}`, body);
    const near = (points, x) => points.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best, points[0]);
    chart.onpointermove = (event) => {
      const area = chart.firstChild.getBoundingClientRect();
      const px = (event.clientX - area.left) / area.width * box.w;
      if (px < box.l - 4 || px > box.w - box.r + 4 || !client.length) { chart.onpointerleave(); return; }
      const x = Math.max(1, Math.min(last, Math.round(1 + (px - box.l) / (box.w - box.l - box.r) * (last - 1))));
      const cross = at("cross");
      cross.setAttribute("x1", X.of(x)); cross.setAttribute("x2", X.of(x)); cross.setAttribute("visibility", "visible");
      const pairs = lines.filter((line) => line.points.length).map((line) => [esc(line.name), near(line.points, x)[1], line.passes.some((p) => p[0] === x)])
        .sort((a, b) => b[1] - a[1]).map(([name, y, pass]) => [name, whole(y) + (pass ? " ▾ pass" : "")]);
      tell(event, `<b>request ${x}</b>${rowsOf([["client sent", whole(near(client, x)[1])], ...pairs])}`);
    };
    chart.onpointerleave = () => { at("cross").setAttribute("visibility", "hidden"); hush(); };
  };
  const drawLegend = () => {
    at("legend").innerHTML = data.policies.map((name) =>
      `<button type="button" aria-pressed="${shown.has(name)}" data-name="${esc(name)}"><svg viewBox="0 0 26 10" aria-hidden="true"><line x1="1" x2="25" y1="5" y2="5" style="stroke:${colour(name)}" stroke-width="${name === ours ? 3 : 2}"${dash(name)}/></svg>${esc(name)}</button>`).join("")
      + `<button type="button" data-all="1">all</button><button type="button" data-all="0">few</button>`;
  };
  at("legend").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { name, all } = button.dataset;
    if (name) { shown.has(name) ? shown.delete(name) : shown.add(name); }
    else if (all === "1") data.policies.forEach((policy) => shown.add(policy));
    else { shown.clear(); (first.length ? first : data.policies.slice(0, 3)).forEach((policy) => shown.add(policy)); }
    drawLegend(); drawSeries();
  });

  // ---- tables ----
  // heads: [text, more is better, hint]; rows: {cells: [[value, text, class]], class, click}
  const drawTable = (id, heads, body, foot) => {
    const sort = state.sort[id];
    const value = (row) => row.cells[sort.by][0];
    if (sort) body = [...body].sort((a, b) => { const x = value(a), y = value(b); return sort.way * (typeof x === "string" ? x.localeCompare(y) : x - y); });
    const line = (row, tag) => `<tr class="${row.class || ""}"${row.at === undefined ? "" : ` data-at="${row.at}"`}>${row.cells.map(([, text, kind]) => `<${tag} class="${kind || ""}">${text}</${tag}>`).join("")}</tr>`;
    const head = heads.map(([text, , hint], i) => `<th scope="col"${sort && sort.by === i ? ` aria-sort="${sort.way > 0 ? "ascending" : "descending"}"` : ""}><button type="button" data-by="${i}" title="${esc(hint || "")}">${esc(text)}</button></th>`).join("");
    at(id).innerHTML = `<thead><tr>${head}</tr></thead><tbody>${body.map((row) => line(row, "td")).join("")}</tbody>${foot ? `<tfoot>${line(foot, "td")}</tfoot>` : ""}`;
    at(id).onclick = (event) => {
      const button = event.target.closest("thead button");
      if (button) {
        const by = +button.dataset.by, way = heads[by][1] > 0 ? -1 : 1;
        state.sort[id] = sort && sort.by === by ? { by, way: -sort.way } : { by, way };
        draw();
        return;
      }
      const row = event.target.closest("tr[data-at]");
      if (row) choose(+row.dataset.at);
    };
  };
  const drawPolicies = () => {
    const all = rows(state.scope);
    at("policies-of").textContent = state.scope === "all" ? `Over ${data.sessions.length} sessions${data.settings.ceilings.length > 1 ? ", summed over all τ" : ""}.` : `${data.sessions[state.session].name} alone.`;
    const heads = [["policy", 0, ""], ...FIGURES.map(([, head, , way, words]) => [head, way, words])];
    drawTable("policies", heads, data.policies.map((name, i) => ({
      class: name === ours ? "ours" : "",
      cells: [[name, esc(name)], ...FIGURES.map(([key, , show]) => [all[i][col(key)], show(all[i][col(key)])])],
    })));
  };
  const drawSessions = () => {
    const [key, , show, way, words] = figure(state.figure), c = col(key);
    const cells = (list) => {
      const values = list.map((row) => row[c]);
      // Who sends everything loses nothing: that is no contest.
      const rivals = values.filter((_, i) => data.policies[i] !== "none");
      const best = way === 0 || rivals.length < 2 ? NaN : way > 0 ? Math.max(...rivals) : Math.min(...rivals);
      return values.map((v, i) => [v, show(v), `${v === best && data.policies[i] !== "none" ? "best " : ""}${data.policies[i] === ours ? "ours" : ""}`]);
    };
    const heads = [["session", 0, ""], ["tokens", 1, "of its texts, tool names and arguments"], ["requests", 1, ""], ...data.policies.map((name) => [name, way, words])];
    const body = data.sessions.map((session, i) => ({ at: i, class: i === state.session ? "chosen" : "", cells: [[session.name, esc(session.name)], [session.tokens, whole(session.tokens)], [session.requests, whole(session.requests)], ...cells(session.rows)] }));
    const sum = (key2) => data.sessions.reduce((all, session) => all + session[key2], 0);
    drawTable("sessions", heads, body, { cells: [["", "all"], [0, whole(sum("tokens"))], [0, whole(sum("requests"))], ...cells(data.total)] });
  };

  // ---- controls ----
  const options = (id, pairs, key, then) => {
    at(id).innerHTML = pairs.map(([value, text]) => `<option value="${esc(value)}">${esc(text)}</option>`).join("");
    at(id).value = String(state[key]);
    at(id).onchange = () => { state[key] = then ? then(at(id).value) : at(id).value; draw(); };
  };
  const choose = (session) => { state.session = session; at("session").value = String(session); draw(); };
  const draw = () => { hush(); drawFront(); drawSeries(); drawPolicies(); drawSessions(); };
  const longest = data.sessions.reduce((best, session, i) => session.requests > data.sessions[best].requests ? i : best, 0);
  state.session = longest;
  options("front-measure", FIGURES.slice(0, 3).map(([key, head, , , words]) => [key, `${head}: ${words}`]), "measure");
  options("front-scope", [["all", "all sessions"], ["one", "the session chosen below"]], "scope");
  options("session", data.sessions.map((session, i) => [i, `${session.name} (${short(session.tokens)} tokens, ${session.requests} requests)`]), "session", Number);
  options("ceiling", data.settings.ceilings.map((ceiling, i) => [i, whole(ceiling)]), "ceiling", Number);
  options("figure", FIGURES.map(([key, head, , , words]) => [key, `${head}: ${words}`]), "figure");
  const s = data.settings;
  at("settings").textContent = `${data.sessions.length} sessions${data.left_out ? ` (${data.left_out} shorter ones left out)` : ""} · τ = ${s.ceilings.map(whole).join(" + ")} · floor ${s.floor} · episodes ${s.annotate} · prices ${s.prices}`;
  at("legend-words").innerHTML = `<dl>${FIGURES.map(([, head, , , words]) => `<dt>${esc(head)}</dt><dd>${esc(words)}</dd>`).join("")}</dl>`;
  drawLegend();
  draw();
})();

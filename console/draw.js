// How numbers become places in a chart. Owns scales, ticks, paths and the places of labels, and thins a
// series to the pixel columns that can show it: the lowest and the highest value of each. Never reads data,
// never colours.

/** @typedef {number | null} Value */
/** @typedef {(turn: number) => number} Scale */

/** Rounds a place to a tenth of a pixel. @param {number} n */
const px = (n) => String(Math.round(n * 10) / 10);

/**
 * Places the turns `from` to `to` between `left` and `right`. One turn alone stands at the left.
 * @param {number} from @param {number} to @param {number} left @param {number} right @returns {Scale}
 */
export function turnScale(from, to, left, right) {
  const span = Math.max(1, to - from);
  return (turn) => left + 0.5 + ((turn - from) / span) * (right - left - 1);
}

/**
 * The turn whose place is nearest.
 * @param {number} x @param {number} from @param {number} to @param {number} left @param {number} right
 */
export function turnAt(x, from, to, left, right) {
  const share = (x - left) / Math.max(1, right - left - 1);
  return Math.max(from, Math.min(to, Math.round(from + share * (to - from))));
}

/** A step of 1, 2, 2.5 or 5 times a power of ten, at least `raw`. @param {number} raw */
function roundStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 2.5, 5, 10].find((s) => s * power >= raw * (1 - 1e-9)) ?? 10) * power;
}

/** Round values from 0 to `most`: steps of 1, 2, 2.5 or 5. @param {number} most @param {number} [about] */
export function ticks(most, about = 5) {
  if (!(most > 0)) return [0];
  const step = roundStep(most / about);
  const out = [];
  for (let i = 0; i * step <= most * (1 + 1e-9); i += 1) out.push(i * step);
  return out;
}

/**
 * Round values around a range that need not begin at 0, in steps of 1, 2, 2.5 or 5, the first at or below
 * `low` and the last at or above `high`; and how many digits behind the point tell them apart.
 * @param {number} low @param {number} high @param {number} [about]
 */
export function ticksBetween(low, high, about = 5) {
  const span = high - low > 0 ? high - low : Math.abs(high) || 1;
  const step = roundStep(span / about);
  const out = [];
  for (let i = Math.floor(low / step + 1e-9); out.length < 100; i += 1) {
    out.push(Number((i * step).toPrecision(12)));
    if (out.length > 1 && i * step >= high - step * 1e-9) break;
  }
  let digits = 0;
  while (digits < 9 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 * step * 10 ** digits) digits += 1;
  return { ticks: out, digits };
}

/** Round turns between two, as many as a width has room for. @param {number} from @param {number} to @param {number} width */
export function turnTicks(from, to, width) {
  const room = Math.max(2, Math.floor(width / 90));
  const step = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000].find((s) => (to - from) / s <= room) ?? 5000;
  const out = [];
  for (let turn = Math.ceil(from / step) * step; turn <= to; turn += step) if (turn > 0) out.push(turn);
  const first = out[0];
  if (first === undefined || first - from > step / 2) out.unshift(from);
  return out;
}

/**
 * Thins a series to at most two points a pixel column: its lowest and its highest, in their order. What
 * has no value leaves a gap.
 * @param {number[]} turns @param {Value[]} values @param {Scale} x @returns {[number, number][][]} runs of points
 */
export function columns(turns, values, x) {
  /** @type {[number, number][][]} */
  const runs = [];
  /** @type {[number, number][]} */
  let run = [];
  /** @type {{ col: number, lo: [number, number], hi: [number, number] } | null} */
  let open = null;
  const flush = () => {
    if (!open) return;
    const { lo, hi } = open;
    if (lo[0] === hi[0]) run.push(lo);
    else if (lo[0] < hi[0]) run.push(lo, hi);
    else run.push(hi, lo);
    open = null;
  };
  for (let i = 0; i < turns.length; i += 1) {
    const value = values[i];
    if (value === null || value === undefined) {
      flush();
      if (run.length) runs.push(run);
      run = [];
      continue;
    }
    /** @type {[number, number]} */
    const point = [x(/** @type {number} */ (turns[i])), value];
    const col = Math.floor(point[0]);
    if (open && open.col === col) {
      if (value < open.lo[1]) open.lo = point;
      if (value >= open.hi[1]) open.hi = point;
    } else {
      flush();
      open = { col, lo: point, hi: point };
    }
  }
  flush();
  if (run.length) runs.push(run);
  return runs;
}

/** The line through runs of points. @param {[number, number][][]} runs @param {(v: number) => number} y */
export function line(runs, y) {
  return runs
    .map((run) => {
      const points = run.map(([at, v]) => `${px(at)} ${px(y(v))}`);
      return `M${points.join("L")}${points.length === 1 ? "h.1" : ""}`;
    })
    .join("");
}

/** A line that keeps a value until the next one. @param {[number, number][][]} runs @param {(v: number) => number} y */
export function steps(runs, y) {
  return runs
    .map((run) => run.map(([at, v], i) => (i ? `H${px(at)}V${px(y(v))}` : `M${px(at)} ${px(y(v))}`)).join(""))
    .join("");
}

/** What lies under a line, down to `base`. @param {[number, number][][]} runs @param {(v: number) => number} y @param {number} base */
export function under(runs, y, base) {
  return runs
    .map((run) => {
      const first = run[0];
      const last = run.at(-1);
      if (!first || !last) return "";
      return `M${px(first[0])} ${px(base)}L${run.map(([at, v]) => `${px(at)} ${px(y(v))}`).join("L")}L${px(last[0])} ${px(base)}Z`;
    })
    .join("");
}

/**
 * Moves labels apart, so that each has `gap` pixels; the first given keeps its place.
 * @param {number[]} places @param {number} gap
 */
export function apart(places, gap) {
  /** @type {number[]} */
  const out = [];
  for (const place of places) {
    let best = place;
    for (let away = 0; away < 200; away += 1) {
      const free = [place + away, place - away].find((p) => out.every((o) => Math.abs(o - p) >= gap));
      if (free !== undefined) {
        best = free;
        break;
      }
    }
    out.push(best);
  }
  return out;
}

/** One place for each pixel column in which something happened. @param {number[]} turns @param {Scale} x @param {number} [apartBy] */
export function events(turns, x, apartBy = 2) {
  /** @type {{ turn: number, x: number, more: number }[]} */
  const out = [];
  for (const turn of turns) {
    const at = x(turn);
    const last = out.at(-1);
    if (last && at - last.x < apartBy) last.more += 1;
    else out.push({ turn, x: at, more: 0 });
  }
  return out;
}

/** @typedef {{ x: number, y: number, w: number, r: number, reach: number }} Labelled a point, the width of its label, its own radius, and how far from it the label may stand */
/** @typedef {{ x: number, y: number, anchor: "start" | "middle" | "end", edge: number, far: boolean }} Placed */
/** @typedef {[number, number, number, number]} Box left, top, right, bottom */

/** How far from its point a label is tried. */
const AWAY = [4, 12, 24, 38, 54, 72, 94, 118];
const HIGH = 12;

/**
 * Places a label beside each point, so that it covers no point and no other label; those that come first
 * choose first, and one that finds no place within `box` has none. `taken` is covered by something else.
 * @param {Labelled[]} points @param {Box} box @param {Box[]} [taken] @returns {(Placed | null)[]}
 */
export function labels(points, box, taken = []) {
  /** @type {Box[]} */
  const covered = [...taken, ...points.map(({ x, y, r }) => /** @type {Box} */ ([x - r - 1, y - r - 1, x + r + 1, y + r + 1]))];
  return points.map((point) => {
    for (const away of AWAY) {
      if (away > point.reach) break;
      for (const spot of around(point, point.r + away)) {
        const own = boxOf(spot, point.w);
        const fits = own[0] >= box[0] && own[1] >= box[1] && own[2] <= box[2] && own[3] <= box[3];
        if (!fits || covered.some((o) => own[2] > o[0] && own[0] < o[2] && own[3] > o[1] && own[1] < o[3])) continue;
        covered.push(own);
        const edge = spot.anchor === "start" ? own[0] - 1 : spot.anchor === "end" ? own[2] + 1 : spot.x;
        return { ...spot, edge, far: away > 12 };
      }
    }
    return null;
  });
}

/** The places around a point. @param {Labelled} point @param {number} d @returns {Omit<Placed, "edge" | "far">[]} */
function around({ x, y }, d) {
  const s = d * 0.75;
  return [
    { x: x + d, y: y + 4, anchor: "start" }, { x: x - d, y: y + 4, anchor: "end" },
    { x, y: y - d - 1, anchor: "middle" }, { x, y: y + d + 9, anchor: "middle" },
    { x: x + s, y: y - s, anchor: "start" }, { x: x + s, y: y + s + 8, anchor: "start" },
    { x: x - s, y: y - s, anchor: "end" }, { x: x - s, y: y + s + 8, anchor: "end" },
  ];
}

/** What a label covers, with air around it. @param {Omit<Placed, "edge" | "far">} spot @param {number} w @returns {Box} */
function boxOf({ x, y, anchor }, w) {
  const left = anchor === "start" ? x : anchor === "end" ? x - w : x - w / 2;
  return [left - 2, y - HIGH + 1, left + w + 2, y + 4];
}

"""Adds up what was played, and draws the tables.

Owns the sums, the intervals and the words of the columns. Never plays anything.
"""

import random
import statistics

import cache

DRAWS = 2000
MILLION = 1e6


class Sum:
    """An arm over the sessions of a set. `base` are the results of `none`, by session."""

    def __init__(self, arm, rows, base, vendors):
        self.arm = arm
        self.rows = {name: one for name, one in rows.items() if "error" not in one and name in base}
        self.errors = [one["error"] for one in rows.values() if "error" in one]
        self.base = base
        self.vendors = vendors

    def total(self, field):
        return sum(one.get(field, 0) for one in self.rows.values())

    def cost(self, vendor, rows=None):
        usd = self.vendors[vendor]["usd"]
        rows = self.rows if rows is None else rows
        return {name: cache.dollars(usd, *one["billed"][vendor], one["output"]) for name, one in rows.items()}

    def relative(self, vendor):
        """What it costs beside `none`, over the same sessions."""
        ours, theirs = self.cost(vendor), self.cost(vendor, self.base)
        whole = sum(theirs[name] for name in ours)
        return sum(ours.values()) / whole if whole else None

    def dearer(self, vendor):
        """In how many sessions it costs more than `none`."""
        ours, theirs = self.cost(vendor), self.cost(vendor, self.base)
        return sum(ours[name] > theirs[name] * 1.00005 for name in ours)

    def share(self, part, whole):
        """A share over all sessions, with the interval that drawing sessions anew gives."""
        pairs = [(one.get(part, 0), one.get(whole, 0)) for one in self.rows.values()]
        return ratio(pairs), interval(pairs)

    def added(self):
        """Milliseconds that a turn takes longer than without anything between, of each turn."""
        found = []
        for name, one in self.rows.items():
            pairs = zip(one["milliseconds"], self.base[name]["milliseconds"])
            found += [ours - theirs for ours, theirs in pairs if ours >= 0 and theirs >= 0]
        return found


def ratio(pairs):
    whole = sum(pair[1] for pair in pairs)
    return sum(pair[0] for pair in pairs) / whole if whole else None


def interval(pairs):
    """The middle 95 % of draws of as many sessions, with putting back."""
    if not pairs:
        return None
    chance = random.Random(7)
    draws = [ratio(chance.choices(pairs, k=len(pairs))) for _ in range(DRAWS)]
    draws = sorted(one for one in draws if one is not None)
    return (draws[int(len(draws) * 0.025)], draws[int(len(draws) * 0.975)]) if draws else None


def percent(value):
    """Whole per cent, without the sign: that stands in the column's head."""
    return "–" if value is None else f"{value * 100:.0f}"


def three(value):
    return "–" if value is None else "1" if value == 1 else f"{value:.3f}".lstrip("0")


def interval_of(pair):
    value, ends = pair
    if value is None or ends is None:
        return "–"
    return f"{three(value)} ({three(ends[0])}–{three(ends[1])})"


def milliseconds(values):
    return f"{statistics.median(values):.1f}" if values else "–"


def money(one, vendor):
    """What it costs beside `none`, and of `none` itself in dollars."""
    if one.arm.kind == "none":
        return f"${sum(one.cost(vendor).values()):.2f}"
    return percent(one.relative(vendor))


def row(one, columns):
    """One arm's line."""
    if not one.rows:
        return [one.arm.name, "failed"] + [""] * (len(columns) - 1)
    cells = {
        "M tokens": f"{one.total('sent') / MILLION:.2f}",
        "K": interval_of(one.share("kept", "need")),
        "arguments in view": interval_of(one.share("seen", "said")),
        "or to be called back": three(one.share("back", "said")[0]),
        "user texts": one.total("users_touched"),
        "breaks": one.total("breaks"),
        "over": f"{one.total('over'):,}" + ("" if one.arm.budget else "*"),
        "largest": f"{max(play['peak'] for play in one.rows.values()):,}",
        "ms p50": milliseconds(one.added() if one.arm.kind != "none" else []),
        **{f"{vendor}, %": money(one, vendor) for vendor in one.vendors},
    }
    return [one.arm.name] + [str(cells[name]) for name in columns]


def table(head, rows):
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, one)) + " |" for one in rows])


def lengths(sums, bounds):
    """Money beside `none` at the first vendor, and K, by how long sessions grow: at the largest budget, unmarked."""
    vendor = next(iter(sums[0].vendors))
    groups = list(zip([0, *bounds], [*bounds, None]))
    head = ["arm"] + [f"{vendor}, %, {span(*one)}" for one in groups] + [f"K, {span(*one)}" for one in groups]
    rows = []
    most = max((one.arm.budget or 0 for one in sums), default=0)
    for one in sums:
        if one.arm.kind in ("none", "plimsoll marked") or one.arm.budget not in (None, most):
            continue
        parts = [part(one, low, high) for low, high in groups]
        rows.append([one.arm.name, *(f"{percent(each.relative(vendor))}" for each in parts),
                     *(three(each.share("kept", "need")[0]) for each in parts)])
    counts = [str(len(part(sums[0], *one).rows)) for one in groups]
    return table(head, [["sessions", *counts, *counts], *rows])


def span(low, high):
    if not low:
        return f"below {high // 1000}k"
    return f"{low // 1000}k – {high // 1000}k" if high else f"from {low // 1000}k"


def part(one, low, high):
    """An arm over the sessions whose largest whole request lies between two sizes."""
    base = {name: play for name, play in one.base.items() if low <= play["peak"] < (high or play["peak"] + 1)}
    return Sum(one.arm, one.rows, base, one.vendors)


def losses(sums):
    """For each arm of ours: in how many sessions it costs more than `none`, by vendor; and which other arms cost less
    and show at least as much of what the next call needs."""
    vendors = list(sums[0].vendors)
    found = []
    for ours in (one for one in sums if one.arm.kind.startswith("plimsoll") and one.rows):
        better = [f"{one.arm.name} ({vendor})" for vendor in vendors for one in sums
                  if one.rows and not one.arm.kind.startswith("plimsoll")
                  and one.relative(vendor) < ours.relative(vendor)
                  and (one.share("kept", "need")[0] or 0) >= (ours.share("kept", "need")[0] or 0)]
        dearer = [ours.dearer(vendor) for vendor in vendors]
        found.append([ours.arm.name, *dearer, ", ".join(better) or "–"])
    head = [f"of {len(sums[0].rows)} sessions, dearer than `none`", *vendors, "cheaper, and K no lower"]
    return table(head, found)


def told(sums, budget):
    """What the unmarked arms of one budget come to, in a sentence."""
    arms = [one for one in sums if one.arm.budget == budget and one.arm.kind != "plimsoll marked" and one.rows]
    vendor = next(iter(sums[0].vendors))
    said = [f"{one.arm.kind} {percent(one.relative(vendor))}, {three(one.share('kept', 'need')[0])}" for one in arms]
    return f"At {budget:,} ({vendor}, %; K): {'; '.join(said)}."


def faults(sums):
    """What a strict provider would refuse, by kind; and why arms failed."""
    lines = []
    for one in sums:
        kinds = {}
        for play in one.rows.values():
            for kind, count in play["kinds"].items():
                kinds[kind] = kinds.get(kind, 0) + count
        if kinds:
            told = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
            lines.append(f"- `{one.arm.name}`: {told}")
        if one.errors:
            lines.append(f"- `{one.arm.name}` failed in {len(one.errors)} sessions, first with: {one.errors[0]}")
        turns = one.total("failed")
        if turns:
            why = next(play["why"][0] for play in one.rows.values() if play["why"])
            lines.append(f"- `{one.arm.name}` left {turns} turns unanswered, first with: {why}")
    return "\n".join(lines) or "A strict provider would refuse none of the requests, and no arm failed."

"""Figures of scored views as tables.

    python report.py views.jsonl scores.jsonl … [--against cwl] [--policies none,cwl,recency]

Takes the turns of which every view is scored. ΔNLL is how much less likely an answer was, in nats a token,
than behind the full history. Owns what is told; `figures.py` computes it.
"""

import argparse

import text
from figures import classes, mean, rank_correlation, resampled, within_turns
from score import chosen, digest, lines, scored

KINDS = ("edit", "read", "search", "run", "call", "text")
SEEN = ("shown", "indexed", "hidden")


def turns(views, scores, tokens, full):
    """The turns of which all views are scored, in order: for each its views by policy, with scores."""
    found = {}
    for view in views:
        found.setdefault((view["session"], view["turn"]), {})[view["policy"]] = view
    done = []
    for own in found.values():
        for view in own.values():
            keys = (digest(view, form, tokens) for form in text.FORMS)
            score = next((scores[key] for key in keys if key in scores), None)
            view["score"] = score if score and "lp" in score else None
        if full in own and all(view["score"] for view in own.values()):
            done.append(own)
    for own in done:
        base = own[full]["score"]["lp"]
        for view in own.values():
            view["delta"] = mean(base) - mean(view["score"]["lp"])
    return done


def table(head, rows):
    """A table in Markdown."""
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in rows])


def span(low, high):
    return f"{low:+.3f} … {high:+.3f}"


def share(view, name):
    """A measure of a view; none where nothing was needed."""
    part, whole = view["measures"][name]
    return part / whole if whole else None


def policies(done, full):
    """One row a policy."""
    names = [name for name in done[0] if name != full]
    sessions = [own[full]["session"] for own in done]
    # Those of the lab; candidates have names of their own, and stand below.
    measures = [name for name in done[0][full]["measures"] if name.isupper()]
    rows = []
    for name in names:
        views = [own[name] for own in done]
        deltas = [view["delta"] for view in views]
        kept = []
        for measure in measures:
            part = sum(view["measures"][measure][0] for view in views)
            whole = sum(view["measures"][measure][1] for view in views)
            kept.append(f"{part / whole:.3f}" if whole else "–")
        rows.append(
            [name, f"{mean(v['tokens'] for v in views):.0f}", f"{mean(v['score']['size'] for v in views):.0f}"]
            + [f"{mean(deltas):+.3f}", span(*resampled(deltas, sessions))]
            + [f"{mean(delta <= 0.05 for delta in deltas):.0%}", *kept]
        )
    rows.sort(key=lambda row: float(row[3]))
    head = ["view", "tokens", "the model's", "ΔNLL", "95 %", "within .05", *measures]
    return table(head, rows)


def pairs(done, full, against):
    """Each policy beside one."""
    sessions = [own[full]["session"] for own in done]
    rows = []
    for name in done[0]:
        if name in (full, against):
            continue
        deltas = [own[name]["delta"] - own[against]["delta"] for own in done]
        low, high = resampled(deltas, sessions)
        worse = f"{mean(d > 0.005 for d in deltas):.0%}"
        better = f"{mean(d < -0.005 for d in deltas):.0%}"
        rows.append([name, f"{mean(deltas):+.3f}", span(low, high), worse, better])
    rows.sort(key=lambda row: float(row[1]))
    return table(["view", f"ΔNLL − that of {against}", "95 %", "worse", "better"], rows)


def strings(done, full):
    """What tokens of strings that had been said before cost, by whether the view showed them."""
    rows = []
    for name in done[0]:
        if name == full:
            continue
        costs = {seen: [] for seen in (*SEEN, None)}
        for own in done:
            view = own[name]
            told = text.answer(view["answer"])
            spans = classes(told, view["score"]["bytes"], view["strings"])
            for one, base, lp in zip(spans, own[full]["score"]["lp"], view["score"]["lp"]):
                costs[one].append(base - lp)
        cell = [f"{mean(costs[s]):+.3f} ({len(costs[s])})" if costs[s] else "–" for s in (*SEEN, None)]
        rows.append([name, *cell])
    return table(["view", *SEEN, "all else"], rows)


def kinds(done, full):
    """ΔNLL by what the answer does."""
    rows = []
    for name in done[0]:
        if name == full:
            continue
        cells = []
        for kind in KINDS:
            own = [o[name]["delta"] for o in done if text.kind(o[name]["answer"]) == kind]
            cells.append(f"{mean(own):+.3f} ({len(own)})" if own else "–")
        rows.append([name, *cells])
    return table(["view", *KINDS], rows)


def correlations(done, full):
    """Which cheap measure ranks the views as the model does."""
    views = [(own[full]["session"], [v for n, v in own.items() if n != full]) for own in done]
    rows = []
    for name in done[0][full]["measures"]:
        found = within_turns(views, lambda view: share(view, name), lambda view: view["delta"])
        within = f"{found[0]:+.3f} ({span(found[1], found[2])}, {found[3]} turns)" if found else "–"
        pooled = [(share(v, name), v["delta"]) for _, own in views for v in own if share(v, name) is not None]
        rho = rank_correlation(*map(list, zip(*pooled))) if pooled else None
        rows.append([name, within, "–" if rho is None else f"{rho:+.3f} ({len(pooled)})"])
    size = within_turns(views, lambda view: view["tokens"], lambda view: view["delta"])
    if size:
        rows.append(["tokens", f"{size[0]:+.3f} ({span(size[1], size[2])}, {size[3]} turns)", "–"])
    return table(["measure", "rank correlation with ΔNLL within a turn", "over all views"], rows)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("views")
    options.add_argument("scores", nargs="+")
    options.add_argument("--full", default="none", help="the view that the others are held against")
    options.add_argument("--against", default="cwl", help="the policy that the others are paired with")
    options.add_argument("--policies", help="these alone, with commas; the full one must be among them")
    options.add_argument("--tokens", type=int, default=220, help="as they were scored")
    asked = options.parse_args()
    views = chosen(lines(asked.views), asked.policies, None)
    done = turns(views, scored(asked.scores), asked.tokens, asked.full)
    if not done:
        raise SystemExit("no turn has all its views scored yet")
    sessions = {own[asked.full]["session"] for own in done}
    count = sum(len(own[asked.full]["score"]["lp"]) for own in done)
    nll = mean(-mean(own[asked.full]["score"]["lp"]) for own in done)
    print(f"{len(done)} turns of {len(sessions)} sessions, {count} tokens scored; full history: {nll:.3f} nats a token\n")
    print(policies(done, asked.full), end="\n\n")
    if asked.against in done[0]:
        print(pairs(done, asked.full, asked.against), end="\n\n")
    print("By what the view showed of strings that had been said before (tokens):\n")
    print(strings(done, asked.full), end="\n\n")
    print("By what the answer does (turns):\n")
    print(kinds(done, asked.full), end="\n\n")
    print(correlations(done, asked.full))


if __name__ == "__main__":
    main()

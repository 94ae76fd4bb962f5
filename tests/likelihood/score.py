"""How likely a real model finds the recorded answers, given what each policy sent.

    plimsoll replay TRACES --budget 5000 --annotate none --views views.jsonl …
    python score.py views.jsonl [more.jsonl …] --scores scores.jsonl [--model gemma] [--threads 1]
    python report.py views.jsonl scores.jsonl

Reads views, appends one line a scored view, and goes on where it stopped: what is scored is known by a
digest of its text, whichever policy sent it. Block by block as the views were chosen, so that whatever is
done is a balanced sample. Within a session's block, texts are read in the order of their tokens, so that
what several have at their front is read once, whichever turn, policy or file they come from: give the
files that are to be scored together.
Owns order and resumption; never judges a score.
"""

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

import text
from engine import Reader, cuts


def digest(view, form, tokens):
    """What a score is known by: all that the model reads, and how much of the answer is scored."""
    pieces = text.view(view["messages"], form)
    whole = json.dumps([pieces, text.answer(view["answer"]), form, tokens])
    return hashlib.sha256(whole.encode()).hexdigest()[:20]


def lines(file):
    """The lines of a file as JSON, but for one that a killed writer left unfinished."""
    path = Path(file)
    if not path.exists():
        return
    with open(path, encoding="utf-8") as source:
        for line in source:
            if line.endswith("\n"):
                yield json.loads(line)


def scored(files):
    """What is scored already, by digest."""
    return {row["key"]: row for file in files for row in lines(file)}


def blocks(views):
    """Views by block and session, in the order of the blocks."""
    found = {}
    for view in views:
        found.setdefault((view["block"], view["session"]), []).append(view)
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def part(views, which):
    """The views of one of several equal shares of the sessions."""
    share, shares = (int(number) for number in which.split("/"))
    sessions = list(dict.fromkeys(view["session"] for view in views))
    return [view for view in views if sessions.index(view["session"]) % shares == share - 1]


def context(model, view, form):
    """The tokens of a view, and of its answer."""
    before, begins = [], True
    for piece, markup in text.view(view["messages"], form):
        before += model.tokens(piece, markup, begins)
        begins = False
    return before, model.tokens(text.answer(view["answer"]))


def form_of(model, asked):
    """ChatML for a model that knows it, else plain headings."""
    if asked != "auto":
        return asked
    return "chatml" if len(model.tokens("<|im_start|>", markup=True)) == 1 else "plain"


def score(model, reader, views, done, out, tokens, form):
    """Scores what is not scored yet; yields after each view what it took."""
    form = form_of(model, form)
    for block in blocks(views):
        jobs = {}
        for view in block:
            key = digest(view, form, tokens)
            if key not in done:
                jobs.setdefault(key, view)
        read = {key: context(model, view, form) for key, view in jobs.items()}
        texts = {key: (before, answer[:tokens]) for key, (before, answer) in read.items()}
        keys = sorted(texts, key=lambda key: sum(texts[key], []))
        for at, key in enumerate(keys):
            view, (before, answer) = jobs[key], texts[key]
            row = {"key": key, "form": form, "size": len(before)}
            row |= {name: view[name] for name in ("session", "turn", "policy")}
            if len(before) + len(answer) > model.window:
                row["error"] = "longer than the window"
            else:
                begun = time.time()
                later = cuts([texts[key] for key in keys], at)
                found, count = reader.score(before, answer, later)
                row |= {"read": count, "secs": round(time.time() - begun, 2)}
                row["lp"] = [round(one, 5) for one in found]
                row["bytes"] = [model.length(token) for token in answer]
            out.write(json.dumps(row) + "\n")
            out.flush()
            done[key] = row
            yield row


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("views", nargs="+", help="what `plimsoll replay --views` wrote")
    options.add_argument("--scores", required=True, help="the file that is added to")
    options.add_argument("--model", default="gemma", help="gemma, qwen, or a GGUF file")
    options.add_argument("--policies", help="these alone, with commas")
    options.add_argument("--turns", type=int, help="the first so many turns alone")
    options.add_argument("--longest", type=int, help="turns alone whose full history has at most so many of the lab's tokens")
    options.add_argument("--tokens", type=int, default=220, help="tokens of an answer that are scored")
    options.add_argument("--window", type=int, default=28_672, help="tokens of the longest text")
    options.add_argument("--form", default="auto", choices=["auto", *text.FORMS])
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--part", default="1/1", help="2/3: the second third of the sessions, for three at a time")
    options.add_argument("--pause", help="wait while this file exists")
    options.add_argument("--backend", default="linux-x64", help="which libraries npm has: linux-x64-cuda, …")
    options.add_argument("--llama", help="a build of llama.cpp and its source in its place: BUILD:SOURCE")
    options.add_argument("--layers", type=int, default=0, help="layers that a GPU holds; 999 for all")
    asked = options.parse_args()
    # Here, so that nothing else needs the network or a library.
    import fetch
    from engine import Llama

    library, backends = fetch.engine(asked.backend, asked.llama)
    weights = fetch.model(asked.model)
    views = [view for file in asked.views for view in chosen(lines(file), asked.policies, asked.turns, asked.longest)]
    views = part(views, asked.part)
    done = scored([asked.scores])
    model = Llama(library, backends, weights, asked.window, asked.threads, asked.layers)
    reader = Reader(model, asked.pause)
    count, begun, read = 0, time.time(), 0
    with open(asked.scores, "a", encoding="utf-8") as out:
        for row in score(model, reader, views, done, out, asked.tokens, asked.form):
            count, read = count + 1, read + row.get("read", 0)
            rate = read / max(1e-9, time.time() - begun)
            print(f"{count} views, {read} tokens, {rate:.0f} a second", file=sys.stderr, flush=True)


def chosen(views, policies, turns, longest=None):
    """The views of some policies and of the first turns, of those with no longer a history."""
    views = list(views)
    short = {(v["session"], v["turn"]) for v in views if v["policy"] == "none" and v["tokens"] <= (longest or 0)}
    kept, seen = [], {}
    for view in views:
        turn = (view["session"], view["turn"])
        if longest is not None and turn not in short:
            continue
        seen.setdefault(turn, len(seen))
        if turns is not None and seen[turn] >= turns:
            continue
        if policies is None or view["policy"] in policies.split(","):
            kept.append(view)
    return kept


if __name__ == "__main__":
    main()

"""Recorded sessions in the shapes of the API.

Reads `recorded.json.xz`, whose `about` and `sources` say what it is and whose texts it has. Owns the
translation and what is made from it: ten thousand sessions and a session of five thousand turns. Serves
nothing.
"""

import copy
import json
import lzma
import time
from pathlib import Path

HERE = Path(__file__).parent
NOW = round(time.time() * 1000)
TENANTS = {name: f"{at:x}" * 32 for at, name in ((0xD, "dev"), (0xB, "bench"), (0x5, "support"))}
MARKS = {"l": "live", "c": "clipped", "m": "masked", "r": "removed"}
AGES = [0, 0, 4, 6, 11, 9, 32, 48, 60, 70, 120, 130, 190]
COLUMNS = (
    "turn ended model in out budget floor prologue over hops passes recalled own_ms first_ms account request_ids fail_open cut missed"
).split()


def load():
    return json.loads(lzma.decompress((HERE / "recorded.json.xz").read_bytes()))


def money(not_sent, rewrites, hidden, whole):
    """An account whose parts add up, as the server promises."""
    net = not_sent - rewrites - hidden
    return {
        "net": net,
        "not_sent": not_sent,
        "rewrites": rewrites,
        "hidden": hidden,
        "breakpoints": 0.0,
        "unexplained": 0.0,
        "whole": whole,
        "paid": whole - net,
    }


def accounts(usd, turns):
    units = {name: value * 800_000 for name, value in usd.items()}
    return {"usd": usd, "units": units, "turns": turns}


def mark(item, name):
    if name in ("f", "folded"):
        return "tombstone" if item["r"] == "h" else "trimmed"
    return MARKS.get(name, name)


def item_id(item):
    kind = {"u": "user", "a": "text", "h": "delimiter"}.get(item["r"], "item")
    if item["r"] == "h" and (item.get("l") or "").startswith("recall"):
        kind = "recall"
    return item.get("id") or f"{kind}:{item['n']}"


def zone(out, budget):
    share = out / budget
    return "red" if share >= 0.9 else "yellow" if share >= 0.75 else "green"


def row_of(source, at):
    title = " ".join(source["title"].split())[:160]
    finding = source.get("find")
    usd = money(source["gross"], source["rewrite"], source["hidden"], source["whole"])
    spark = source["spark"][-48:]
    return {
        "session": source["id"],
        "tenant": TENANTS[source["tenant"]],
        "record": source["id"] * 4,
        "parent": source["parent"],
        "branch": False,
        "title": title,
        "finding": {"episode": source["findep"], "text": finding} if finding else None,
        "item": None,
        "model": source["model"],
        "mode": source["mode"],
        "profile": None,
        "split": None,
        "content": True,
        "live": AGES[at] == 0,
        "began": NOW - (AGES[at] + 3 * source["turns"]) * 60_000,
        "ended": NOW - AGES[at] * 60_000,
        "turn": source["turns"],
        "client_tokens": source["in"],
        "view_tokens": source["out"],
        "in": source["in"],
        "out": source["out"],
        "budget": source["budget"],
        "floor": source["floor"] or 0,
        "zone": zone(source["in" if source["mode"] == "observe" else "out"], source["budget"]),
        "turns_to_pass": max(0, source["budget"] - source["out"]) // 1500 if AGES[at] < 100 else None,
        "agent": "codex" if at % 3 else "claude-cli",
        "turns": source["turns"],
        "passes": source["passes"],
        "hops": source["hops"],
        "recalls": source["recalls"],
        "over": source["over"],
        "needed": dict.fromkeys(("in_view", "missed", "read_again", "asked_again", "recalled"), 0),
        "prompt": source["tok"],
        "cached": round(source["cached"] * source["tok"]),
        "saved": None if source["mode"] == "observe" else accounts(usd, source["turns"]),
        "projected": accounts(usd, source["turns"]) if source["mode"] == "observe" else None,
        "spark": spark,
    }


LONG = json.dumps({"error": {"message": "messages.41: " + "tool_use ids must be unique. " * 20, "type": "invalid"}})
# Newest first: which session it is of (none: it was refused before it had one), its turn, and what is not as usual.
FAILED = [
    ("c88ce2a93a9f26fe", 141, {"said": '{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}'}),
    ("c88ce2a93a9f26fe", 100, {"kind": "5xx", "status": 502, "calls": [{"status": None, "request_id": None}]}),
    ("c88ce2a93a9f26fe", 60, {"kind": "broken", "status": 200, "said": None, "own": "the stream ended early"}),
    ("c88ce2a93a9f26fe", 60, {"status": 400, "code": "invalid", "said": LONG, "retried": [], "fail_open": "refused_twice"}),
    (None, None, {"status": 403, "calls": [], "retried": [], "code": "host_not_allowed", "said": None, "own": "no host"}),
    ("0123456789abcdef", 1, {"kind": "5xx", "status": 529, "listed": False, "retried": []}),
]


def failure(at, rows):
    """A request that failed, half a minute behind the turn that came before it."""
    session, turn, more = FAILED[at]
    row = next((row for row in rows if row["session"] == session), rows[0])
    status = more.get("status", 429)
    return {
        "number": len(FAILED) - at,
        "at": row["ended"] - (row["turn"] - (turn or 10) + 1) * 60_000 + 30_000,
        "tenant": row["tenant"][:16],
        "session": session,
        "listed": session is not None,
        "turn": turn,
        "model": row["model"],
        "route": "chat_completions",
        "kind": "4xx",
        "status": status,
        "calls": [{"status": status, "request_id": f"req_{at}"}],
        "retried": ["status", "status"],
        "fail_open": None,
        "own": None,
        "code": "rate_limit_exceeded",
        "said": "It failed.",
        **more,
    }


def turn_of(row, cells, before):
    out = cells["out"] or [cells["in"]]
    paid, whole = cells["$"], cells["w$"]
    rewrites = max(0.0, paid - whole) if cells["p"] else 0.0
    usd = money(whole - paid + rewrites, rewrites, 0.0, whole)
    hops = [[sent, sent, cached, said] for sent, cached, said in zip(out, cells["ca"], cells["co"])]
    return {
        "turn": cells["t"],
        "ended": row["ended"] - (row["turn"] - cells["t"]) * 60_000,
        "model": row["model"],
        "in": cells["in"],
        "out": out[-1],
        "budget": row["budget"],
        "floor": cells["fl"] or before or row["floor"],
        "prologue": 0,
        "over": cells["b"] == "exceeded",
        "hops": hops,
        "passes": int(cells["p"]),
        "recalled": cells["rt"] or 0,
        "own_ms": cells["oh"],
        "first_ms": cells["ft"],
        "account": accounts(usd, 1),
        "request_ids": [f"req_a2b41b{cells['rid']}"] * len(hops),
        "fail_open": None,
        "cut": None,
        "missed": None,
    }


def items_of(detail):
    """Items with what only `items/ID` shows of them: `_text`, `_stubs`."""
    roles = {"u": "user", "a": "assistant", "c": "call", "h": "hidden"}
    for item in detail["items"]:
        need = item.get("need")
        label = (item.get("l") or "").split("\n")[0][:120]
        ident = item_id(item)
        yield {
            "no": item["n"],
            "id": ident,
            "role": roles[item["r"]],
            "tool": ident.split(":")[0] if item["r"] in "ch" else None,
            "turn": item["t"],
            "episode": item.get("e"),
            "tokens": item["k"],
            "marks": [[turn, mark(item, name)] for turn, name in item.get("m", [])],
            "sizes": item["s"],
            "needed": {"how": need[0], "turn": need[1], "word": (need + [None])[2]} if need else None,
            "pinned": False,
            "client": item["r"] != "h",
            "label": label,
            "_text": item.get("x") or label,
            "_stubs": item.get("f", []),
        }


def pass_of(detail, items, entry):
    by_number = {item["n"]: item for item in detail["items"]}
    shapes = {item["no"]: item for item in items}
    moves = []
    for number, was, becomes, before, after in entry["mv"]:
        item = by_number.get(number)
        if item is None:
            continue
        stubs = [text for turn, text in item.get("f", []) if turn <= entry["turn"]]
        need = shapes[number]["needed"]
        moves.append(
            {
                "no": number,
                "id": item_id(item),
                "episode": item.get("e"),
                "from": mark(item, was),
                "to": mark(item, becomes),
                "before": before,
                "after": after,
                "stub": stubs[-1] if stubs and becomes != "removed" else None,
                "label": shapes[number]["label"],
                "needed": need if need and need["turn"] >= entry["turn"] else None,
            }
        )
    missed = [m for m in moves if m["needed"] and m["needed"]["how"] != "in view"]
    return {
        "pass": {
            "turn": entry["turn"],
            "hop": 0,
            "trigger": entry["trigger"],
            "before": entry["before"],
            "after": entry["after"],
            "floor": entry["floor"] or 0,
            "items": len(moves),
            "freed": max(0, entry["before"] - entry["after"]),
            "cut": max(0, entry["after"] - entry["reread"]),
            "reread": entry["reread"],
            "needed": len(missed),
        },
        "moves": moves,
        "held": held_at(detail, entry["turn"]),
    }


def held_at(detail, turn):
    episodes = detail["eps"]
    opened = next((e for e in episodes if e["start"] <= turn and (e["end"] or 10**9) > turn), None)
    held = []
    for at, episode in enumerate(episodes):
        if episode["start"] > turn or (episode.get("gone") or 10**9) <= turn:
            continue
        why = "floor"
        if episode is opened:
            why = "open"
        elif opened and episode["name"] in opened["deps"]:
            why = "needed"
        held.append({"episode": at, "name": episode["name"], "tokens": episode["tok"], "why": why})
    return sorted(held, key=lambda h: -h["tokens"])[:16]


def held(item, turn):
    """What an item took of the view of a turn."""
    if item["role"] not in ("user", "system") and item["turn"] == turn:
        return 0
    return next((size for at, size in reversed(item["sizes"]) if at <= turn), 0)


def detail_of(row, source):
    columns = source["turns"]["cols"]
    turns, floor = [], None
    for cells in source["turns"]["rows"]:
        turns.append(turn_of(row, dict(zip(columns, cells)), floor))
        floor = turns[-1]["floor"]
    items = list(items_of(source))
    for turn in turns:
        turn["prologue"] = max(0, turn["out"] - sum(held(item, turn["turn"]) for item in items))
    passes = [pass_of(source, items, entry) for entry in source["passes"]]
    episodes = [
        {
            "name": e["name"],
            "type": e["type"],
            "explicit": True,
            "deps": e["deps"],
            "start": e["start"],
            "end": e["end"],
            "finding": e["find"],
            "items": e["n"],
            "tokens": e["tok"],
            "now": e["now"],
            "first_evicted": e.get("gone"),
            "gone": e.get("dead"),
        }
        for e in source["eps"]
    ]
    return {"turns": turns, "items": items, "passes": passes, "episodes": episodes}


def plain_detail(row):
    """What is made of a session of which only the row was recorded: its turns, evenly grown."""
    turns = []
    for number in range(1, row["turn"] + 1):
        share = number / row["turn"]
        turns.append(
            {
                "turn": number,
                "ended": row["ended"] - (row["turn"] - number) * 60_000,
                "model": row["model"],
                "in": round(row["in"] * share),
                "out": round(row["out"] * share),
                "budget": row["budget"],
                "floor": row["floor"],
                "prologue": 0,
                "over": False,
                "hops": [[round(row["out"] * share), round(row["out"] * share), 0, 40]],
                "passes": 0,
                "recalled": 0,
                "own_ms": 4.0,
                "first_ms": 9.0,
                "account": None,
                "request_ids": [None],
                "fail_open": None,
                "cut": None,
                "missed": None,
                    }
        )
    return {"turns": turns, "items": [], "passes": [], "episodes": []}


def long(row, detail, turns=5000):
    """A session of so many turns, and an episode for each five of them."""
    big = copy.deepcopy(row)
    big.update(session="00000000000050aa", title="A session of very many turns", parent=None, turn=turns)
    source = detail["turns"]
    made = []
    for at in range(turns):
        turn = dict(source[at % len(source)])
        turn.update(turn=at + 1, ended=big["ended"] - (turns - at) * 60_000, **{"in": turn["in"] + at * 30})
        made.append(turn)
    episodes = []
    for at in range(turns // 5):
        episode = dict(detail["episodes"][at % len(detail["episodes"])])
        start = at * 5 + 1
        last = at == turns // 5 - 1
        episode.update(name=f"work-{at}", deps=[f"work-{at - 1}"] if at % 3 == 1 else [])
        episode.update(start=start, end=None if last else start + 5)
        episode.update(first_evicted=None if last else start + 9, gone=None if last else start + 40)
        episodes.append(episode)
    items = []
    for at in range(turns * 2):
        item = dict(detail["items"][at % len(detail["items"])])
        turn = at // 2 + 1
        item.update(no=at, id=f"{item['id'].split(':')[0]}:{at}", turn=turn, episode=None, marks=[])
        item.update(sizes=[[turn, item["tokens"]]] + ([[turn + 30, 0]] if item["role"] != "user" else []))
        item.update(needed=None)
        items.append(item)
    passes = []
    for at in range(0, turns, 40):
        entry = copy.deepcopy(detail["passes"][at // 40 % len(detail["passes"])])
        entry["pass"]["turn"] = at + 30
        passes.append(entry)
    return big, {"turns": made, "items": items, "passes": passes, "episodes": episodes}


def many(rows, count):
    """So many sessions, none of them with a detail of its own."""
    made = []
    for at in range(count):
        row = dict(rows[at % len(rows)])
        row.update(session=f"{at:016x}", parent=None, ended=NOW - at * 30_000, live=False)
        row["title"] = f"{row['title'][:60]} ({at})"
        made.append(row)
    return made

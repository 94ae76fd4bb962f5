"""A server that answers as the admin listener does, from recorded sessions.

For what a live proxy can't be brought to in a test: ten thousand sessions, a session of five thousand
turns, a server that is silent or slow, refusals. Every answer is held to the OpenAPI file, so that this
can't tell the page what the real one would not: `Fake.faults` has what was found wrong. Owns no
reckoning: saved, in view and needed later come from the recordings.

    python fake_server.py [PORT]

serves for a look by hand.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from urllib.parse import parse_qs, unquote, urlsplit

import contract
import recorded

PAGE = Path(__file__).parents[2] / "console"
TOKEN = "token-of-the-page"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
WHAT_IF = ("budget floor policy usd peak passes cached requests extra over visible recoverable again").split()


class Refusal(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status = status
        self.code = code


class Fake(ThreadingHTTPServer):
    """What it serves may be changed between requests: these attributes are the tests' levers."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        data = recorded.load()
        self.recorded = data
        self.whatif = data["whatif"]["rows"]
        self.rows = [recorded.row_of(source, at) for at, source in enumerate(data["sessions"])]
        self.details = {
            row["session"]: recorded.detail_of(row, data["detail"][row["session"]])
            if row["session"] in data["detail"]
            else recorded.plain_detail(row)
            for row in self.rows
        }
        self.failures = [recorded.failure(at, self.rows) for at in range(len(recorded.FAILED))]
        self.content = "live"
        self.most_searched = 10_000
        self.delay = 0.0
        self.silent = False
        self.refuse = {}
        self.pins = set()
        self.changes = []
        self.priced = True
        self.waiting = {"pins": 0, "evict": False, "evictions": [], "recalls": []}
        self.asked = []
        self.faults = []
        self.readers = []
        self.event = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def tell(self, kind, schema, data):
        """Sends an event to every page that listens."""
        self.hold(schema, data)
        self.event += 1
        text = f"id: {self.event}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
        for reader in list(self.readers):
            reader.put(text)

    def hang_up(self):
        """Ends every stream of events."""
        for reader in list(self.readers):
            reader.put(None)

    def hold(self, schema, value):
        wrong = contract.fault(schema, value)
        if wrong:
            self.faults.append(wrong)

    def row(self, name):
        found = [row for row in self.rows if row["session"] == name]
        if not found:
            raise Refusal(404, "unknown_session", f"No session {name} is stored or in memory.")
        return self.shown(found[0])

    def shown(self, row):
        if self.content == "off":
            return {**row, "title": None, "finding": None, "item": None}
        return row

    def where(self, row):
        if self.content == "off":
            return "withheld"
        return "stored" if row["content"] else "none"

    def next_turn(self, name):
        """Lets a session have one more turn, like its last, and tells it."""
        at = next(i for i, row in enumerate(self.rows) if row["session"] == name)
        detail = self.details[name]
        turn = {**detail["turns"][-1], "turn": detail["turns"][-1]["turn"] + 1}
        turn["in"] += 500
        turn["out"] += 500
        detail["turns"].append(turn)
        row = {**self.rows[at], "turn": turn["turn"], "in": turn["in"], "out": turn["out"]}
        row["ended"] = round(time.time() * 1000)
        self.rows[at] = row
        event = {"session": name, "tenant": row["tenant"], "row": {**self.shown(row), "spark": []}, "turn": turn}
        self.tell("turn", "TurnEvent", event)


def total_of(rows, account):
    """The dollars of an account over all rows."""
    names = "not_sent rewrites hidden whole".split()
    return recorded.money(**{name: sum(row[account]["usd"][name] for row in rows) for name in names}) if rows else None


def sums_of(rows):
    """What every answer over several sessions adds up."""
    known = [row for row in rows if row["saved"]]
    watched = [row for row in rows if row["mode"] == "observe"]
    return {
        "sessions": len(rows),
        "turns": sum(row["turn"] for row in known),
        "over": sum(row["over"] or 0 for row in rows),
        "saved": {
            "usd": total_of(known, "saved"),
            "units": None,
            "turns": sum(row["turn"] for row in known),
        },
        "observed": {
            "sessions": len(watched),
            "turns": sum(row["turn"] for row in watched),
            "projected": {
                "usd": total_of(watched, "projected"),
                "units": None,
                "turns": sum(row["turn"] for row in watched),
            },
        },
        "unpriced": len(rows) - len(known) - len(watched),
        "prompt": sum(row["prompt"] for row in known),
        "cached": sum(row["cached"] for row in known),
        "whole_prompt": sum(row["prompt"] for row in known) * 2,
        "whole_cached": round(sum(row["prompt"] for row in known) * 2 * 0.986),
    }


def tree_of(server, name):
    """A session with all that descends from it."""
    names, rows = {name}, [row for row in server.rows if row["session"] == name]
    while found := [row for row in server.rows if row["parent"] in names and row["session"] not in names]:
        names.update(row["session"] for row in found)
        rows += found
    counts = {key: sum(row[key] or 0 for row in rows) for key in ("passes", "hops", "recalls")}
    return rows, {**sums_of(rows), **counts}


def overview(server, _query):
    rows = server.rows
    overs = [row for row in rows if row["over"]]
    return "Overview", {
        **sums_of(rows),
        "over_sessions": len(overs),
        "over_now": sum(1 for row in overs if row["out"] > row["budget"]),
        "process": {
            "since": recorded.NOW - 7_200_000,
            "turns": 950,
            "fail_open": {"dialect": 1} if rows else {},
            "unmanaged": {"conversation_at_provider": 3} if rows else {},
            "unrecorded": {"late": 1} if rows else {},
            "failed": counted(server),
            "beside": {"turns": 3 if rows else 0, "prompt": 3_600, "cached": 0, "account": None},
            "own_ms": {"p50": 6.1 if rows else None, "p99": 17.2 if rows else None},
        },
        "upstreams": [
            {
                "name": "api.openai.com",
                "healthy": True if rows else None,
                "requests": 1001 if rows else 0,
                "errors": 0,
                "last_error": None,
            }
        ],
        "server": {
            "version": "0.0.0",
            "content": server.content,
            "agents": "http://127.0.0.1:8787",
            "stores_content": True,
            "now": recorded.NOW,
        },
    }


def spend(server, query):
    """Every session in the bar of its newest turn; the last fifth of its cost is a hop's."""
    bounds = [int(bound) for bound in query["bounds"].split(",")]
    empty = {"turns": 0, "unpriced": 0, "paid": 0.0, "whole": 0.0, "saved": 0.0, "sent": 0, "client": 0}
    bars = [{"from": bound, **empty} for bound in bounds]
    total, by = {"sessions": 0, **empty}, {"model": {}, "agent": {}, "tenant": {}}

    def add(to, one):
        for name, value in one.items():
            if name in to:
                to[name] += value

    for row in server.rows:
        at = sum(bound <= row["ended"] for bound in bounds) - 1
        if at < 0:
            continue
        usd = (row["saved"] or row["projected"])["usd"]
        watched = row["mode"] == "observe"
        one = {
            "sessions": 1,
            "turns": row["turn"],
            "unpriced": 0 if server.priced else row["turn"],
            "paid": usd["whole" if watched else "paid"] if server.priced else 0.0,
            "whole": usd["whole"] if server.priced else 0.0,
            "saved": 0.0 if watched or not server.priced else usd["net"],
            "sent": row["prompt"],
            "client": row["prompt"] * 2,
        }
        add(bars[at], one)
        add(total, one)
        for name, sums in by.items():
            add(sums.setdefault(row[name], {"name": row[name], "sessions": 0, **empty}), one)
    hidden = total["paid"] / 5
    roles = {"main": total["paid"] - hidden, "hidden": hidden, "aside": 0.0}
    named = {name: sorted(sums.values(), key=lambda sum: -sum["paid"]) for name, sums in by.items()}
    return "Spend", {
        "bars": bars,
        "total": total,
        "by": {**named, "role": [{"name": name, "paid": paid} for name, paid in roles.items()]},
        "beside": {"turns": 3, "paid": 0.01, "since": recorded.NOW - 7_200_000},
        "whole": True,
    }


def counted(server):
    kinds = [one["kind"] for one in server.failures]
    return {kind: kinds.count(kind) for kind in ("4xx", "5xx", "broken") if kind in kinds}


def failures(server, query):
    every = [one for one in server.failures if query.get("session") in (None, one["session"])]
    limit = int(query.get("limit", 100))
    shown = every[:limit]
    if server.content != "live":
        shown = [{**one, "said": None} for one in shown]
    return "Failures", {
        "since": recorded.NOW - 7_200_000,
        "failed": counted(server),
        "failures": shown,
        "next": str(shown[-1]["number"]) if len(every) > limit else None,
        "content": server.content,
    }


SORTS = {
    "last": lambda row: -row["ended"],
    "fill": lambda row: -(row["out"] or 0) / (row["budget"] or 1),
    "turn": lambda row: -row["turn"],
    "passes": lambda row: -(row["passes"] or 0),
    "cached": lambda row: -(row["cached"] or 0) / (row["prompt"] or 1),
    "saved": lambda row: -(row["saved"]["usd"]["net"] if row["saved"] else 0),
    "next": lambda row: row["turns_to_pass"] if row["turns_to_pass"] is not None else 10**9,
    "model": lambda row: row["model"],
}


def sessions(server, query):
    text = query.get("q", "").lower()
    behind = int(query.get("older", 0))
    newest = sorted(server.rows, key=SORTS["last"])
    searched = {row["session"] for row in newest[behind : behind + server.most_searched]}

    def item_of(row):
        """The line of the first item that has the text, where nothing that the row shows has it."""
        if any(text in row[name].lower() for name in ("session", "model")):
            return None if behind else ""
        if row["session"] not in searched:
            return None
        shown = " ".join(str(row[name]) for name in ("title", "finding")).lower()
        items = server.details.get(row["session"], {"items": []})["items"]
        labels = [item["label"] or "" for item in items]
        found = (label for label in labels if text in label.lower())
        return "" if text in shown else next(found, None) if server.content != "off" else None

    def fits(row):
        saved = row["saved"]
        return (
            item_of(row) is not None
            and ("zone" not in query or (row["over"] if query["zone"] == "over" else row["zone"] == query["zone"]))
            and row["tenant"].startswith(query.get("tenant", ""))
            and query.get("model", row["model"]) == row["model"]
            and ("unmanaged" not in query or row["mode"] == "observe")
            and ("loss" not in query or (saved is not None and saved["usd"]["net"] < 0))
        )

    sort = query.get("sort", "last")
    rows = sorted(filter(fits, server.rows), key=SORTS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    start, limit = int(query.get("cursor", 0)), int(query.get("limit", 100))
    page = [{**server.shown(row), "item": item_of(row) or None} for row in rows[start : start + limit]]
    after = start + limit
    return "SessionList", {
        "sessions": page,
        "next": str(after) if after < len(rows) else None,
        "total": len(rows),
        "unsearched": None if server.content == "off" or not text else max(0, len(newest) - behind - len(searched)),
        "older": str(behind + len(searched)) if text and behind + len(searched) < len(newest) else None,
        "tree": None,
    }


def session(server, _query, name):
    row = server.row(name)
    detail = server.details[name]
    withheld = server.content == "off"
    family, sums = tree_of(server, name)
    return "Session", {
        "row": row,
        "children": [server.shown(child) for child in server.rows if child["parent"] == name],
        "tree": sums if len(family) > 1 else None,
        "episodes": [{**e, "finding": None} for e in detail["episodes"]] if withheld else detail["episodes"],
        "passes": [entry["pass"] for entry in detail["passes"]],
        "parts": parts(row, detail),
        "pins": sorted(server.pins),
        "waiting": server.waiting,
        "content": server.where(row),
    }


def parts(row, detail):
    """What the newest view is made of, by the sizes of its items."""
    if not detail["items"]:
        return None
    sums = dict.fromkeys("system tools user open needed closed left marks recalled".split(), 0)
    opened = next((e for e in detail["episodes"] if e["end"] is None), None)
    for one in detail["items"]:
        size = one["sizes"][-1][1] if one["sizes"] else 0
        episode = detail["episodes"][one["episode"]] if one["episode"] is not None else None
        part_of = "closed"
        if one["role"] == "user":
            part_of = "user"
        elif one["role"] == "hidden":
            part_of = "recalled" if one["tool"] == "recall" else "marks"
        elif one["marks"]:
            part_of = "left"
        elif episode and episode is opened:
            part_of = "open"
        elif episode and opened and episode["name"] in opened["deps"]:
            part_of = "needed"
        sums[part_of] += size
    sums["system"] = detail["turns"][-1]["prologue"]
    return sums


def turns(server, query, name):
    server.row(name)
    every = server.details[name]["turns"]
    start = int(query.get("from", 1))
    page = [turn for turn in every if turn["turn"] >= start][:5000]
    return "Turns", {
        "from": page[0]["turn"] if page else 0,
        "to": page[-1]["turn"] if page else 0,
        "total": len(every),
        "columns": {column: [turn[column] for turn in page] for column in recorded.COLUMNS},
    }


def changes(server, _query, name):
    server.row(name)
    if server.content == "off":
        raise Refusal(409, "content_withheld", "content is withheld: console.content does not allow it")
    return "Changes", {"changes": server.changes}


def plain(server, item):
    shape = {name: value for name, value in item.items() if not name.startswith("_")}
    shape["pinned"] = item["id"] in server.pins
    if server.content == "off":
        shape["label"] = None
        if shape["needed"]:
            shape["needed"] = {**shape["needed"], "word": None}
    return shape


def items(server, query, name):
    row = server.row(name)
    every = server.details[name]["items"]
    start, limit = int(query.get("cursor", 0)), int(query.get("limit", 1000))
    after = start + limit
    return "Items", {
        "items": [plain(server, item) for item in every[start:after]],
        "next": str(after) if after < len(every) else None,
        "total": len(every),
        "content": server.where(row),
        "needed": bool(every),
    }


def item(server, query, name, ident):
    row = server.row(name)
    found = [i for i in server.details[name]["items"] if ident in (i["id"], str(i["no"]))]
    if not found:
        raise Refusal(404, "unknown_item", f"The session has no item {ident}.")
    one = found[0]
    turn = int(query.get("turn", row["turn"]))
    marks = [(at, mark) for at, mark in one["marks"] if at <= turn]
    stubs = [text for at, text in one["_stubs"] if at <= turn]
    withheld = server.content == "off"
    mark = marks[-1][1] if marks else "live"
    why = "hidden" if one["role"] == "hidden" else "pass" if marks else "same"
    reason = {
        "hidden": "The proxy added it; the agent never sees it.",
        "pass": f"The pass before turn {marks[-1][0] if marks else 0} took it: its episode was closed.",
        "same": "It is sent as it came.",
    }[why]
    return "ItemDetail", {
        "item": plain(server, one),
        "turn": turn,
        "mark": mark,
        "original": None if withheld else one["_text"],
        "arguments": None if withheld or one["role"] != "call" else json.dumps({"of": one["label"]}),
        "shown": stubs[-1] if stubs and mark not in ("live", "removed") and not withheld else None,
        "why": why,
        "reason": reason,
        "pass": marks[-1][0] if marks else None,
        "content": server.where(row),
    }


def withheld(move):
    needed = {**move["needed"], "word": None} if move["needed"] else None
    return {**move, "stub": None, "label": None, "needed": needed}


def one_pass(server, _query, name, turn):
    server.row(name)
    found = [entry for entry in server.details[name]["passes"] if entry["pass"]["turn"] == int(turn)]
    if not found:
        raise Refusal(404, "unknown_pass", f"The session has no pass before turn {turn}.")
    entry = found[-1]
    if server.content == "off":
        entry = {**entry, "moves": [withheld(move) for move in entry["moves"]]}
    return "Pass", entry


def pin(server, body, name):
    server.pins.update(body["ids"])
    return 202, "Asked", {"session": name, "from": "the session's next turn"}


def unpin(server, body, name):
    server.pins.difference_update(body["ids"])
    return 202, "Asked", {"session": name, "from": "the session's next turn"}


def evict(server, body, name):
    items = body.get("items", [])
    if items:
        server.waiting = {**server.waiting, "evictions": items}
    elif body["now"]:
        server.waiting = {**server.waiting, "evict": True}
    return 202, "Waits", {
        "session": name,
        "from": "the session's next request" if body["now"] else "the next pass",
        "tokens": 11_020,
        "cost": {"tokens": 21_300, "units": 19_000.0, "usd": 0.024},
    }


def recall(server, body, name):
    server.waiting = {**server.waiting, "recalls": body["items"]}
    return 202, "Waits", {
        "session": name,
        "from": "the session's next request" if body.get("now") else "the turn of the next pass",
        "tokens": 1_380,
        "cost": {"tokens": 1_380, "units": 1_725.0, "usd": 0.002},
    }


def withdraw(server, body, name):
    for kind in ("evictions", "recalls"):
        left = [one for one in server.waiting[kind] if one not in body["items"]]
        server.waiting = {**server.waiting, kind: left}
    return 202, "Waiting", server.waiting


# Where each agent looks for its file, and what resumes from it.
RESUMES = {
    "claude": ("~/.claude/projects, in the folder of your project", "claude --resume 0192a0c6"),
    "codex": ("~/.codex/sessions", "codex resume 0192a0c6"),
    "pi": (None, "pi --session c88ce2a9-pi.jsonl"),
    "opencode": (None, "opencode import c88ce2a9-opencode.jsonl && opencode -s ses_0192 -m PROVIDER/MODEL"),
}


def build(server, body, name):
    row = server.row(name)
    if server.content == "off":
        raise Refusal(403, "content_withheld", "The content of this session may not be shown here.")
    detail = server.details[name]
    messages, parts = [], []
    for first, last in body.get("turns", []):
        for one in detail["items"]:
            if first <= one["turn"] <= last and one["role"] != "hidden":
                kind = {"user": "user", "assistant": "assistant"}.get(one["role"], "call")
                messages.append({"role": kind, "content": one["_text"]})
                parts.append(part(kind, one))
    for episode in detail["episodes"]:
        if episode["name"] in body.get("findings", []):
            messages.append({"role": "assistant", "content": episode["finding"]})
            size = len(episode["finding"]) // 4
            parts.append(
                {"kind": "finding", "items": 1, "tokens": size, "turn": episode["end"], "label": episode["name"]}
            )
    for one in detail["items"]:
        if one["id"] in body.get("items", []):
            messages.append({"role": "tool", "content": one["_text"]})
            parts.append(part("call", one))
    known = {one["id"] for one in detail["items"]}
    form = body["format"]
    text = json.dumps({"model": row["model"], "messages": messages}, indent=1)
    if form == "text":
        text = "# Handoff\n\n" + "\n".join(m["content"] for m in messages)
    if form in RESUMES:
        text = "".join(json.dumps(message) + "\n" for message in messages)
    extension = {"text": "md", **dict.fromkeys(RESUMES, "jsonl")}.get(form, "json")
    put, run = RESUMES.get(form, (None, None))
    return 200, "Built", {
        "format": form,
        "name": f"{name[:8]}-{form}.{extension}",
        "type": "text/markdown" if form == "text" else "application/json",
        "text": text,
        "put": put,
        "run": run,
        "tokens": sum(p["tokens"] for p in parts) + 640,
        "messages": len(messages),
        "parts": parts,
        "missing": [f"{i}: no such item" for i in body.get("items", []) if i not in known],
    }


def part(kind, one):
    return {"kind": kind, "items": 1, "tokens": one["tokens"], "turn": one["turn"], "label": one["label"]}


def points(server, body, name):
    """The lines of an answer of `whatif`, as the lab plays them."""
    rows = [dict(zip(WHAT_IF, row)) for row in server.whatif.get(name, [])]
    fit = [
        row
        for row in rows
        if row["budget"] in body["budgets"]
        and row["policy"] in body.get("policies", ["cwl"])
        and (row["policy"] == "none" or row["floor"] in body.get("floors", ["auto"]))
    ]
    for at, row in enumerate(fit, 1):
        yield "Point", {**row, "units": row["usd"] * 800_000}
        yield "Progress", {"played": at, "of": len(fit), "done": False, "error": None}
    yield "Progress", {"played": len(fit), "of": len(fit), "done": True, "error": None}


READS = {
    (): session,
    ("turns",): turns,
    ("changes",): changes,
    ("items",): items,
    ("items", 1): item,
    ("passes", 1): one_pass,
}
ACTS = {"pin": pin, "unpin": unpin, "evict": evict, "recall": recall, "withdraw": withdraw, "build": build}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        self.send_header("content-security-policy", POLICY)
        self.send_header("x-content-type-options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, refusal):
        self.answer(refusal.status, {"error": {"message": str(refusal), "code": refusal.code}})

    def checked(self, status, schema, value):
        self.server.hold(schema, value)
        self.answer(status, value)

    def prepare(self):
        """The path's parts and its query; waits or refuses as it was told to."""
        url = urlsplit(self.path)
        path = [unquote(part) for part in url.path.split("/") if part]
        if path[:1] == ["api"]:
            if self.server.silent:
                self.close_connection = True
                self.connection.close()
                raise ConnectionAbortedError
            time.sleep(self.server.delay)
            for what, refusal in self.server.refuse.items():
                if what in path:
                    raise refusal
        return path, {name: values[0] for name, values in parse_qs(url.query).items()}

    def do_GET(self):
        try:
            path, query = self.prepare()
            if path[:1] != ["api"]:
                return self.file(path)
            if path == ["api", "events"]:
                return self.events()
            if path == ["api", "spend"]:
                return self.checked(200, *spend(self.server, query))
            if path == ["api", "overview"]:
                return self.checked(200, *overview(self.server, query))
            if path == ["api", "failures"]:
                return self.checked(200, *failures(self.server, query))
            if path == ["api", "sessions"]:
                return self.checked(200, *sessions(self.server, query))
            rest = path[3:]
            read = READS.get(tuple(rest[:1]) + ((1,) if len(rest) > 1 else ()))
            return self.checked(200, *read(self.server, query, path[2], *rest[1:]))
        except Refusal as refusal:
            return self.refuse(refusal)
        except (ConnectionError, ValueError):
            return None

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            path, _ = self.prepare()
            if self.headers["x-plimsoll-console"] != TOKEN:
                raise Refusal(403, "no_token", "The request lacks the token of the page.")
            name, action = path[2], path[3]
            self.server.asked.append((action, body))
            if action == "whatif":
                return self.lines(points(self.server, body, name))
            return self.checked(*ACTS[action](self.server, body, name))
        except Refusal as refusal:
            return self.refuse(refusal)
        except ConnectionError:
            return None

    def lines(self, lines):
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("connection", "close")
        self.end_headers()
        for schema, line in lines:
            self.server.hold(schema, line)
            self.wfile.write(json.dumps(line).encode() + b"\n")
            self.wfile.flush()
        self.close_connection = True

    def events(self):
        queue = Queue()
        self.server.readers.append(queue)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b": here\nretry: 300\n\n")
        self.wfile.flush()
        try:
            while not self.server.silent:
                try:
                    text = queue.get(timeout=0.2)
                except Empty:
                    continue
                if text is None:
                    break
                self.wfile.write(text.encode())
                self.wfile.flush()
        finally:
            self.server.readers.remove(queue)
            self.close_connection = True

    def file(self, path):
        found = (PAGE / "/".join(path or ["index.html"])).resolve()
        if PAGE.resolve() not in found.parents or not found.is_file():
            return self.answer(404, b"", "text/plain")
        body = found.read_bytes()
        if found.name == "index.html":
            body = body.replace(b'name="plimsoll-token" content=""', f'name="plimsoll-token" content="{TOKEN}"'.encode())
        return self.answer(200, body, TYPES.get(found.suffix, "application/octet-stream"))


def start(port=0):
    """A fake that serves from a thread until it is shut down."""
    server = Fake(port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    fake = start(int(sys.argv[1]) if len(sys.argv) > 1 else 8900)
    print(fake.url, flush=True)
    while True:
        time.sleep(5)
        while fake.faults:
            print(fake.faults.pop(), flush=True)

"""Plays one session through one arm, and measures what reaches the provider.

Owns the measures of a session: each is a plain number, so that sessions can be added up, but the times, which are
lists. Never decides what is played.
"""

import http.client
import json
import time
from collections import Counter

import cache
import checker
import sources
from marks import Marker
from provider import Hop, units_of
from tokens import calls_of

GIVE_UP = 5


class Failed(Exception):
    """An arm answers no more."""


class Speaker:
    """An agent's connection to a proxy, or to the provider itself."""

    def __init__(self, port, headers):
        self.port = port
        self.headers = {"content-type": "application/json", "authorization": "Bearer sk-none", **headers}
        self.connection = None

    def post(self, body):
        """The status and the seconds it took, or why it failed."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        began = time.perf_counter()
        try:
            self.connection.request("POST", "/v1/chat/completions", body, self.headers)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as failure:
            self.connection = None
            return str(failure) or type(failure).__name__, 0
        took = time.perf_counter() - began
        return (200, took) if answer.status == 200 else (f"{answer.status} {text[:200]!r}", took)


def turns(messages):
    """Each recorded answer with what came before it, and whether the user spoke since the last one."""
    asked, begun = False, False
    for place, one in enumerate(messages):
        if one["role"] == "user":
            asked = begun = True
        elif one["role"] == "assistant":
            if begun:
                yield place, one, asked
            asked = False


class Play:
    """The sums of one session."""

    def __init__(self, session, budget, vendors):
        self.session = session
        self.budget = budget
        self.caches = {name: cache.Cache(one["cache"], one["least"]) for name, one in vendors.items()}
        self.billed = {name: [0, 0, 0] for name in vendors}
        self.sums = Counter()
        self.kinds = Counter()
        self.before = []
        self.peak = 0
        self.milliseconds = []

    def hop(self, hop, sent, sizer):
        """Adds a request that reached the provider."""
        self.sums["requests"] += 1
        self.sums["sent"] += hop.tokens
        self.sums["output"] += sizer.said(hop.answer)
        self.sums["over"] += hop.tokens > self.budget
        self.peak = max(self.peak, hop.tokens)
        keys = [unit.key for unit in hop.units]
        self.sums["breaks"] += self.before != keys[:len(self.before)]
        self.before = keys
        for name, one in self.caches.items():
            self.billed[name] = [a + b for a, b in zip(self.billed[name], one.ask(hop.units))]
        found = checker.problems(hop.messages)
        self.kinds.update(found)
        self.sums["refused"] += bool(found)
        missing, system = checker.untouched(sent, hop.messages)
        self.sums["users_missing"] += missing
        self.sums["users_touched"] += missing > 0
        self.sums["system_touched"] += not system

    def turn(self, hop, history, answer):
        """Adds what the last request of a turn shows of what the next call needs."""
        self.sums["turns"] += 1
        if not calls_of(answer):
            return
        view = sources.spoken(hop.messages)
        need, kept = sources.needs(history, view, answer)
        said, seen, back = sources.values(history, view, answer, hop.tools)
        self.sums.update(need=need, kept=kept, said=said, seen=seen, back=back, calls=1, whole=said == seen)

    def result(self):
        return {**self.sums, "peak": self.peak, "billed": self.billed, "kinds": dict(self.kinds),
                "milliseconds": [round(one, 2) for one in self.milliseconds]}


def play(session, arm, provider, vendors, budget, model):
    """The measures of a session under an arm. Raises `Failed` if the arm answers no more."""
    sizer, began = provider.sizer, time.monotonic()
    total = Play(session, budget, vendors)
    messages, tools = session["messages"], session["tools"]
    view, speaker = arm.view(sizer, budget), arm.speaker(provider, session, budget)
    marker = Marker() if arm.marked else None
    texts, done, heard, failures = [], 0, [], []
    for number, (place, answer, asked) in enumerate(turns(messages)):
        sent = messages[:place]
        texts += [json.dumps(one, ensure_ascii=False) for one in messages[done:place]]
        heard.append(sources.spoken(messages[done:place]))
        done = place
        mark = marker and (lambda: marker.marks(number, asked, calls_of(answer)))
        if speaker is None:
            shown = view.view(sent, tools)
            hops = [Hop({"messages": shown, "tools": tools}, units_of(sizer, shown, tools), 0, answer)]
        else:
            provider.expect(answer, mark)
            status, took = speaker.post(body(model, texts, tools))
            hops = provider.hops
            if status != 200 or not hops:
                failures.append(str(status) if status != 200 else "answered without the provider")
                if len(failures) >= GIVE_UP:
                    raise Failed(failures[-1])
                total.milliseconds.append(-1)
                continue
            total.milliseconds.append((took - sum(hop.seconds for hop in hops)) * 1000)
        for hop in hops:
            total.hop(hop, sent, sizer)
        total.turn(hops[-1], "\n".join(heard), answer)
    return {**total.result(), "failed": len(failures), "why": failures[:1],
            "seconds": round(time.monotonic() - began, 2)}


def body(model, texts, tools):
    """A request of the agent's: messages that are already JSON are not made anew."""
    offered = f',"tools":{json.dumps(tools)}' if tools else ""
    return f'{{"model":{json.dumps(model)},"messages":[{",".join(texts)}]{offered}}}'.encode()

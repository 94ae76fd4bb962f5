"""The JavaScript clients complete tool sessions in all dialects, and what their own types make of
the answers is what it is without the proxy."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import chat
import messages
import responses
from programs import PROGRAMS
from scripts import HIDDEN, LONG_PARTS, RECALL, SCRIPTS, hidden_ids

DRIVER = Path(__file__).parent / "clients" / "run.mjs"
LIMIT = 60
# By client: its dialect, and what its types call the ends of a step and of a task.
CLIENTS = {
    "openai-chat": (chat, "tool_calls", "stop"),
    "openai-responses": (responses, "completed", "completed"),
    "anthropic": (messages, "tool_use", "end_turn"),
    "vercel-compatible": (chat, "tool-calls", "stop"),
    "vercel-chat": (chat, "tool-calls", "stop"),
    "vercel-responses": (responses, "tool-calls", "stop"),
    "vercel-messages": (messages, "tool-calls", "stop"),
}
HOWS = ["whole", "streamed"]
# Two texts of one answer: Chat has one text, the others a block for each.
JOINED = {chat: "The change is written.\n\nTask one is done."}
BLOCKS = "The change is written.Task one is done."


def play(at, client, how, *tasks):
    """What the client's types made of each answer; they are the same whatever `at` is."""
    done = subprocess.run(
        [PROGRAMS / "node", DRIVER, client, how, at.base_url, *tasks],
        env={"PATH": os.environ["PATH"], **clients()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout), done.stdout


def clients():
    """Where the clients were installed, if not beside their drivers."""
    place = os.environ.get("PLIMSOLL_CLIENTS")
    return {"PLIMSOLL_CLIENTS": place} if place else {}


def seen(answers):
    return [(answer["text"], answer["calls"], answer["finish"]) for answer in answers]


def accepted(at, dialect):
    """The requests, none of which was refused; behind the proxy all offer the hidden tools."""
    sent = at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    for entry in sent if at.managed else []:
        assert dialect.offered(entry["body"])[:2] == [HIDDEN, RECALL]
        assert not [name for name in entry["headers"] if name.startswith("x-plimsoll")]
    return sent


def hides(text, script):
    for word in [*hidden_ids(SCRIPTS[script]), f'"{HIDDEN}"', f'"{RECALL}"', "Context episodes"]:
        assert word not in text, f"{word} was shown"


def counts(usage):
    """All numbers of a usage, wherever they stand."""
    if isinstance(usage, dict):
        return [count for value in usage.values() for count in counts(value)]
    return [usage] if isinstance(usage, int) else []


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_session_of_two_tasks(stand, client, how):
    dialect, calls, stop = CLIENTS[client]
    tasks = ["[task one] Raise the timeout.", "[task two] Check it."]
    bare, _ = play(stand("sdk", direct=True), client, how, *tasks)
    at = stand("sdk")
    answers, shown = play(at, client, how, *tasks)

    finishes = [calls] * 3 + [stop] + [calls] + [stop]
    assert [answer["finish"] for answer in bare] == finishes
    assert [len(answer["calls"]) for answer in bare] == [1, 2, 1, 0, 1, 0]
    expected = seen(bare)
    if at.managed:
        # The hidden hop of this answer said something, which is not said without its tools.
        text, *rest = expected[3]
        assert text == "Task one is done."
        expected[3] = (JOINED.get(dialect, BLOCKS), *rest)
    assert seen(answers) == expected
    assert all(sum(counts(answer["usage"])) > 0 for answer in answers)

    hides(shown, "sdk")
    sent = accepted(at, dialect)
    # 6 visible answers, and 4 hops that held hidden calls alone.
    assert len(sent) == (10 if at.managed else 6)
    known, results = dialect.exchanged(sent[-1]["body"])
    assert set(known) == results
    ours = {id for id, name in known.items() if name in (HIDDEN, RECALL)}
    assert ours == (hidden_ids(SCRIPTS["sdk"]) if at.managed else set())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_low_ceiling_is_held(stand, client):
    dialect, _, stop = CLIENTS[client]
    task = "[task long] Read all parts."
    without = stand("long", direct=True)
    bare, _ = play(without, client, "streamed", task)
    at = stand("long", "--budget", "4000")
    answers, shown = play(at, client, "streamed", task)
    assert len(bare) == LONG_PARTS + 1 and bare[-1]["finish"] == stop
    assert seen(answers) == seen(bare)
    hides(shown, "long")
    sent = accepted(at, dialect)
    if at.managed:
        metrics = at.metrics()
        assert "plimsoll_budget_unmet_total 0" in metrics
        assert re.search(r"plimsoll_passes_total\{[^}]*\} [1-9]", metrics)
        assert not re.search(r"plimsoll_fail_open_total\{[^}]*\} [1-9]", metrics)
        largest, whole = (
            max(len(json.dumps(entry["body"])) for entry in requests)
            for requests in (sent, without.requests())
        )
        assert largest < whole / 2, "most of the history did not go up any more"

"""What the scripted provider says: steps of hops.

A step is one visible answer; it may take several hops, of which all but the last hold nothing but
`delimiter` calls. Where `delimiter` is not offered, its calls are left out, and hops that held
nothing else are skipped: so the same script serves a client with and without the proxy.
"""

import json
from dataclasses import dataclass, field

HIDDEN = "delimiter"


@dataclass(frozen=True)
class Call:
    """One tool call; its id is made from its place in the script, and so never repeats."""

    name: str
    arguments: dict


@dataclass(frozen=True)
class Hop:
    """One message of the model's."""

    text: str = ""
    calls: tuple = ()

    def hidden_only(self):
        return bool(self.calls) and all(call.name == HIDDEN for call in self.calls)


@dataclass(frozen=True)
class Script:
    """All steps in order, and where the answer to each user message begins."""

    steps: list = field(default_factory=list)
    # A piece of a user message -> the step that answers it.
    tasks: dict = field(default_factory=dict)


def start(name, kind, dependencies=None):
    arguments = {"action": "start", "name": name, "type": kind}
    if dependencies is not None:
        arguments["dependencies"] = dependencies
    return Call(HIDDEN, arguments)


def end(description=None):
    arguments = {"action": "end"}
    if description is not None:
        arguments["description"] = description
    return Call(HIDDEN, arguments)


def call_id(step, hop, place):
    return f"call_s{step}h{hop}n{place}"


def place_of(call_id):
    """The step and hop that a call id was issued in."""
    step, hop = call_id.removeprefix("call_s").split("n")[0].split("h")
    return int(step), int(hop)


@dataclass(frozen=True)
class Asked:
    """What a request asks for, whatever its dialect: told by the tail of its conversation alone, so
    that retries, restarts and evicted history change nothing."""

    # The names of the tools that are offered.
    offered: set
    # The ids of the calls whose results stand behind the newest answer.
    results: list
    # The texts of users that stand there.
    users: list


@dataclass(frozen=True)
class Said:
    """One message of the model's, with the ids that it is given."""

    step: int
    hop: int
    text: str
    # (id, name, arguments as JSON)
    calls: list


def next_place(script, asked):
    """Which hop answers."""
    if asked.results:
        step, hop = place_of(asked.results[0])
        visible = [call for call in script.steps[step][hop].calls if call.name != HIDDEN]
        return (step + 1, 0) if visible else (step, hop + 1)
    for text in asked.users:
        for piece, step in script.tasks.items():
            if piece in text:
                return step, 0
    raise LookupError("no task of the script in the newest user message")


def answer(script, asked):
    """What is said to a request."""
    step, hop = next_place(script, asked)
    hops = script.steps[step]
    if HIDDEN not in asked.offered:
        while hops[hop].hidden_only():
            hop += 1
    calls = [
        (call_id(step, hop, place), call.name, json.dumps(call.arguments))
        for place, call in enumerate(hops[hop].calls)
        if call.name != HIDDEN or HIDDEN in asked.offered
    ]
    return Said(step, hop, hops[hop].text, calls)


SDK = Script(
    tasks={"[task one]": 0, "[task two]": 4},
    steps=[
        # Alone in a hop, then the work.
        [
            Hop(calls=(start("find-config", "expl"),)),
            Hop(text="Let me look.", calls=(Call("grep", {"pattern": "timeout"}),)),
        ],
        # Two visible calls in parallel, nothing hidden.
        [Hop(calls=(Call("read_file", {"path": "a.toml"}), Call("read_file", {"path": "b.toml"})))],
        # Mixed: hidden before the visible call, in one message.
        [
            Hop(
                text="Found it: the timeout stands in a.toml.",
                calls=(
                    end("The timeout stands in a.toml, line 3."),
                    start("set-timeout", "act", ["find-config"]),
                    Call("write_file", {"path": "a.toml", "text": "timeout = 30 # ünïcödé ✓\n"}),
                ),
            )
        ],
        # Text of a hidden hop and text of the last one are one answer.
        [Hop(text="The change is written.", calls=(end(),)), Hop(text="Task one is done.")],
        # A refused call, twice in a row hidden, then mixed with the hidden call behind.
        [
            Hop(calls=(end("There is nothing to end."),)),
            Hop(calls=(start("check", "expl"),)),
            Hop(calls=(Call("grep", {"pattern": "30"}), end("The new value is in place."))),
        ],
        [Hop(text="Task two is done.")],
    ],
)


# Some 14k tokens of results: over three times the budget that the test sets.
LONG_PARTS = 36


def _long():
    steps = []
    for number in range(LONG_PARTS):
        calls = [Call("read_file", {"path": f"long/{number}.txt"})]
        if number % 3 == 0:
            calls.insert(0, start(f"part-{number}", "expl"))
            if number:
                calls.insert(0, end(f"Read up to {number}: nothing of note."))
        steps.append([Hop(text=f"Part {number}.", calls=tuple(calls))])
    steps.append([Hop(text="All parts are read.")])
    return Script(steps=steps, tasks={"[task long]": 0})


def _bash(command):
    return Call("bash", {"command": command})


AGENT = Script(
    tasks={"[task agent]": 0},
    steps=[
        [
            Hop(calls=(start("look-around", "expl"),)),
            Hop(text="First I look around.", calls=(_bash("ls"),)),
        ],
        [Hop(text="There is a file to read.", calls=(_bash("cat notes.txt"),))],
        [
            Hop(
                text="Now I change it.",
                calls=(
                    end("notes.txt holds one line."),
                    start("change-notes", "act", ["look-around"]),
                    _bash("echo second >> notes.txt"),
                ),
            )
        ],
        [
            Hop(calls=(end(),)),
            Hop(calls=(start("verify", "expl"),)),
            Hop(text="And I verify.", calls=(_bash("cat notes.txt && wc -l notes.txt"),)),
        ],
        [
            Hop(
                text="Finished.",
                calls=(
                    end("notes.txt holds two lines."),
                    _bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat notes.txt"),
                ),
            )
        ],
    ],
)

SCRIPTS = {"sdk": SDK, "long": _long(), "agent": AGENT}

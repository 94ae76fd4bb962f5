"""What the scripted provider says: steps of hops.

A step is one visible answer; it may take several hops, of which all but the last hold nothing but
calls of hidden tools. Where those are not offered, their calls are left out, and hops that held
nothing else are skipped: so the same script serves a client with and without the proxy.
"""

import json
import re
from dataclasses import dataclass, field

HIDDEN = "delimiter"
RECALL = "recall"
OURS = {HIDDEN, RECALL}
# How the proxy's guidance begins, which asks for the calls of hidden tools.
GUIDANCE = "Context episodes"
# Begins the texts that hidden calls carry: nothing of an agent's may hold it.
UNSEEN = "unseen finding:"
# How agents ask for a summary of their session, where they offer tools beside it.
SUMMARISE = ("Respond with TEXT ONLY", "CONTEXT CHECKPOINT COMPACTION")
# How Claude Code asks for the rest of an answer of which it heard some text.
CUT_OFF = "Your response above was cut off mid-stream."
CALL = r"call_s\d+h\d+n\d+"


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
        return bool(self.calls) and all(call.name in OURS for call in self.calls)


@dataclass(frozen=True)
class Script:
    """All steps in order, and where the answer to each user message begins."""

    steps: list = field(default_factory=list)
    # A piece of a user message -> the step that answers it.
    tasks: dict = field(default_factory=dict)


def used(offered, body):
    """The tools that the model uses: hidden ones wait until they are asked for."""
    return set(offered) - (set() if GUIDANCE in json.dumps(body) else OURS)


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
    # The texts of users that stand there, newest first.
    users: list
    # The whole conversation, as JSON.
    whole: str = ""
    # Whether a summary is asked for in the dialect's own way, or text only: tools may be offered
    # that must not be called.
    compacts: bool = False


@dataclass(frozen=True)
class Said:
    """One message of the model's, with the ids that it is given."""

    step: int
    hop: int
    text: str
    # (id, name, arguments as JSON)
    calls: list
    # What stood before it, where the provider binds a thought to that.
    bond: str | None = None
    # What it tells of the thoughts that it was sent, where it is asked for that.
    told: list | None = None


def behind(script, call):
    """Which hop follows the results of a call."""
    step, hop = place_of(call)
    visible = [call for call in script.steps[step][hop].calls if call.name not in OURS]
    return (step + 1, 0) if visible else (step, hop + 1)


def next_place(script, asked):
    """Which hop answers."""
    if asked.results:
        return behind(script, asked.results[0])
    for text in asked.users:
        if CUT_OFF in text and (calls := re.findall(CALL, asked.whole)):
            return behind(script, calls[-1])
        if marks := re.findall(RESUME, text):
            return marked(marks)
        for piece, step in script.tasks.items():
            if piece in text:
                return step, 0
    # What an agent keeps of a session that it has summarised need not be the newest message.
    if marks := re.findall(RESUME, asked.whole):
        return marked(marks)
    raise LookupError("no task of the script in the newest user message")


# A summary ends with the place at which the script goes on.
RESUME = r"\[resume at (\d+)\.(\d+)\]"


def marked(marks):
    step, hop = marks[-1]
    return int(step), int(hop)


def aside(script, asked):
    """What is said where no step of the script is asked for: a title, or a summary. None if one
    is."""
    wished = any(wish in text for text in asked.users for wish in SUMMARISE)
    if asked.offered and not (wished or asked.compacts):
        return None
    text = "A small task"
    if calls := re.findall(CALL, asked.whole):
        step, hop = behind(script, calls[-1])
        text = f"Files were read and changed. [resume at {step}.{hop}]"
    return Said(-1, 0, text, [])


def answer(script, asked, tools=None, broken=()):
    """What is said to a request. Places that were broken off once are said with ids of their own:
    an agent may have kept what it heard of them."""
    if tools and (said := aside(script, asked)):
        return said
    step, hop = next_place(script, asked)
    hops = script.steps[step]
    if HIDDEN not in asked.offered:
        while hops[hop].hidden_only():
            hop += 1
    calls = []
    for place, call in enumerate(hops[hop].calls):
        if call.name not in OURS or call.name in asked.offered:
            id = call_id(step, hop, place) + "again" * ((step, hop) in broken)
            calls.append((id, call.name, call.arguments))
    if tools:
        calls = [(id, *tools.call(name, arguments)) for id, name, arguments in calls]
        if not hops[hop].hidden_only() and (submit := tools.submit(not calls)):
            calls.append((call_id(step, hop, len(calls)), *submit))
    return Said(
        step, hop, hops[hop].text, [(id, name, json.dumps(value)) for id, name, value in calls]
    )


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


def _shell(command):
    return Call("shell", {"command": command})


def _read(path):
    return Call("read", {"path": path})


# Played through the tools of real agents: everything that a hop may be, over a file of one line.
WORK = Script(
    tasks={"[task one]": 0, "[task two]": 5},
    steps=[
        # Alone in a hop, then the work.
        [
            Hop(calls=(start("look-around", "expl"),)),
            Hop(text="First I look around.", calls=(_shell("ls"),)),
        ],
        # Two calls in parallel, nothing hidden.
        [
            Hop(
                text="There are files to read.",
                calls=(_read("notes.txt"), _shell("wc -l notes.txt")),
            )
        ],
        # Mixed: hidden before and behind the visible call, in one message.
        [
            Hop(
                text="Now I change one.",
                calls=(
                    end(f"{UNSEEN} notes.txt holds one line."),
                    start("change-notes", "act", ["look-around"]),
                    _shell("echo second >> notes.txt"),
                    end(),
                ),
            )
        ],
        # A refused call, twice in a row hidden, then two visible calls.
        [
            Hop(calls=(end("There is nothing to end."),)),
            Hop(calls=(start("verify", "expl"),)),
            Hop(
                text="And I verify.",
                calls=(_shell("cat notes.txt && echo verified > verified.txt"), _shell("true")),
            ),
        ],
        # Text of a hidden hop and text of the last one are one answer.
        [
            Hop(text="It is verified.", calls=(end(f"{UNSEEN} notes.txt holds two lines."),)),
            Hop(text="Task one is done."),
        ],
        [
            Hop(
                text="One more.",
                calls=(start("once-more", "act", ["verify"]), _shell("echo third >> notes.txt")),
            )
        ],
        [Hop(text="Task two is done.")],
    ],
)
# What stands on disk when both tasks, or the first alone, are done.
WORK_FILES = {"notes.txt": "first\nsecond\nthird\n", "verified.txt": "verified\n"}
WORK_FILES_ONE = {**WORK_FILES, "notes.txt": "first\nsecond\n"}

CHAPTERS = 14
# The shell command whose result is a chapter, of some 2,300 tokens.
CHAPTER = "seq -f 'chapter {0} line %03g holds nothing of note' 1 180"


def _chapters():
    """Results that are together more than any budget that the tests set."""
    steps = []
    for number in range(CHAPTERS):
        calls = [_shell(CHAPTER.format(number))]
        if number % 3 == 0:
            calls.insert(0, start(f"chapters-{number}", "expl"))
            if number:
                calls.insert(0, end(f"{UNSEEN} nothing of note before chapter {number}."))
        steps.append([Hop(text=f"Chapter {number}.", calls=tuple(calls))])
    # The first episode has been evicted by now, and is asked for again.
    back = Call(RECALL, {"id": "chapters-0", "lines": "1-5"})
    steps.append(
        [
            Hop(calls=(end(f"{UNSEEN} nothing of note at all."),)),
            Hop(calls=(back,)),
            Hop(text="All are read.", calls=(_shell("echo read > chapters.txt"),)),
        ]
    )
    steps.append([Hop(text="Task long is done.")])
    steps.append([Hop(text="There is nothing left to do.")])
    return Script(steps=steps, tasks={"[task long]": 0, "[task again]": len(steps) - 1})


def _delegate(prompt, part):
    """`part` is told to agents that have nothing else to tell their sub-agents apart by."""
    return Call("delegate", {"prompt": prompt, "part": part})


# Not every agent waits for those that it starts.
LEAD = (
    "for try in $(seq 200); do [ \"$(cat child.txt)\" = \"$(printf 'looked\\nlooked')\" ] && break; "
    "sleep 0.1; done; sleep 1; echo led > lead.txt"
)
# A task that two sub-agents are given the same part of, at once.
DELEGATE = Script(
    tasks={"[task lead]": 0, "[task child]": 3},
    steps=[
        [
            Hop(calls=(start("delegate", "expl"),)),
            Hop(
                text="I delegate.",
                calls=(
                    _delegate("[task child] Look around.", "one"),
                    _delegate("[task child] Look around.", "two"),
                ),
            ),
        ],
        [
            Hop(
                text="Now my own part.",
                calls=(end(f"{UNSEEN} they have looked around."), _shell(LEAD)),
            )
        ],
        [Hop(text="Task lead is done.")],
        # What a sub-agent does.
        [
            Hop(calls=(start("look-around", "expl"),)),
            Hop(text="I look around.", calls=(_shell("ls"), _read("notes.txt"))),
        ],
        [
            Hop(
                text="And I say so.",
                calls=(end(f"{UNSEEN} one file."), _shell("echo looked >> child.txt")),
            )
        ],
        [Hop(text="Task child is done.")],
    ],
)
DELEGATE_CHILD = 3
DELEGATE_FILES = {"notes.txt": "first\n", "child.txt": "looked\nlooked\n", "lead.txt": "led\n"}

# Two files of lines that no other line is like. Both are longer than what an agent puts into its
# summary by itself.
FIRST, SECOND, FILE_LINES = "first.txt", "second.txt", 200
PARTS, PART_LINES = 9, 20
# Lines amid parts that are read early: one is recalled by its path, the other by a search.
BY_PATH, BY_SEARCH = 10, FILE_LINES + 50
WORDS = "bay crate depot shelf lot seal ledger hold keel tide".split()


def marked_line(number):
    words = " ".join(f"{word}-{(number + 9) * 7919 * len(word) % 65521:04x}" for word in WORDS)
    return f"mark-{number:03d} of setting {number}: {words}; {words[::-1]}; end of {number}"


def marked_file(start):
    return "".join(f"{marked_line(number)}\n" for number in range(start, start + FILE_LINES))


MARKED_FILES = {FIRST: marked_file(0), SECOND: marked_file(FILE_LINES)}


def _part(path, number):
    first = number * PART_LINES + 1
    return Call("part", {"path": path, "first": first, "lines": PART_LINES})


def _reads(path, numbers):
    return [[Hop(text=f"Part {at} of {path}.", calls=(_part(path, at),))] for at in numbers]


def _marks():
    """Reads parts of them, asks for two of these when the agent has dropped all, and for one again
    when more was read."""
    search = Call(RECALL, {"search": f"mark-{BY_SEARCH} "})
    found = _shell("echo found >> found.txt")
    read = [*_reads(FIRST, [0]), *_reads(SECOND, range(PARTS)), [Hop(text="Task marks is done.")]]
    back = [
        [
            Hop(calls=(Call(RECALL, {"id": FIRST}),)),
            Hop(calls=(search,)),
            Hop(text="It is found.", calls=(found,)),
        ],
        [Hop(text="Task back is done.")],
    ]
    more = [
        *_reads(FIRST, range(1, PARTS + 1)),
        [Hop(calls=(search,)), Hop(text="It is found again.", calls=(found,))],
        [Hop(text="Task more is done.")],
    ]
    begins = {"[task marks]": 0, "[task back]": len(read), "[task more]": len(read) + len(back)}
    return Script(steps=[*read, *back, *more], tasks=begins)


SCRIPTS = {
    "marks": _marks(),
    "sdk": SDK,
    "long": _long(),
    "work": WORK,
    "chapters": _chapters(),
    "delegate": DELEGATE,
}


def hidden_ids(script):
    """The ids of all calls of hidden tools in a script."""
    return {
        call_id(step, hop, place)
        for step, hops in enumerate(script.steps)
        for hop, said in enumerate(hops)
        for place, call in enumerate(said.calls)
        if call.name in OURS
    }

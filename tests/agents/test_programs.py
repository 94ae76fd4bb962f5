"""Real agents run their tasks to the end, and neither what they show nor what they keep holds
anything of the proxy. `--direct` leaves the proxy out: each must end in the same way."""

import json
import re

import pytest

import chat
import messages
import responses
from programs import ALL
from scripts import (
    HIDDEN,
    RECALL,
    SCRIPTS,
    UNSEEN,
    WORK_FILES,
    WORK_FILES_ONE,
    hidden_ids,
)

DIALECTS = {"chat": chat, "responses": responses, "messages": messages}
ONE, TWO = "[task one] Add a line to notes.txt and verify it.", "[task two] Add one more line."
LONG = "[task long] Read all chapters."


@pytest.fixture
def begin(stand, tmp_path):
    """A function that makes an agent with a script, and with flags of the proxy and provider."""

    def begin(name, script, *flags, provider=(), **more):
        agent = ALL[name]
        own = ["--agent", agent.name, "--root", tmp_path / "repository"]
        at = stand(script, *flags, provider_flags=[*own, *provider])
        return agent(at, tmp_path, **more)

    return begin


def every(*unless):
    return pytest.mark.parametrize("name", [name for name in ALL if name not in unless])


def done(program, tasks):
    """Runs the tasks one after the other, in one session where the agent can."""
    runs = []
    for task in tasks:
        run = program.run(task, resumed=bool(runs))
        assert run.code == 0, f"exit code {run.code} after {run.seconds:.0f} s\n{run.tail()}"
        runs.append(run)
    return runs


def tasks_of(program):
    return ([ONE, TWO], WORK_FILES) if program.resumes else ([ONE], WORK_FILES_ONE)


def nothing_leaked(program, runs, script):
    """Hidden ids are the script's own; its hidden arguments and results hold these words."""
    words = [*hidden_ids(SCRIPTS[script]), UNSEEN, HIDDEN, "Context episodes"]
    seen = {"what it printed": "".join(run.out + run.err for run in runs).encode()}
    for place, content in (seen | program.kept()).items():
        for word in words:
            assert word.encode() not in content, f"{word} in {place}"


def main(program, requests):
    """The requests of the conversation itself: titles and summaries are none of it."""
    assert requests, "the provider was sent nothing"
    assert [entry["refusal"] for entry in requests] == [None] * len(requests)
    own = [entry for entry in requests if entry.get("said", [0])[0] >= 0]
    if program.at.managed:
        dialect = DIALECTS[program.dialect]
        for entry in own:
            assert dialect.offered(entry["body"])[:2] == [HIDDEN, RECALL]
            assert not [name for name in entry["headers"] if name.startswith("x-plimsoll")]
    return own


def history_is_whole(program, requests, script):
    """The newest request holds every hidden call of the script before it, with its result."""
    newest = requests[-1]
    calls, results = DIALECTS[program.dialect].exchanged(newest["body"])
    assert set(calls) == results
    ours = {id for id, name in calls.items() if name in (HIDDEN, RECALL)}
    before = tuple(newest["said"])
    due = {id for id in hidden_ids(SCRIPTS[script]) if place(id) < before}
    assert ours == (due if program.at.managed else set())


def place(id):
    step, hop = re.match(r"call_s(\d+)h(\d+)", id).groups()
    return int(step), int(hop)


def counted(metrics, name):
    """A counter's sum over its labels."""
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(float(value) for value in found)


@every()
def test_two_tasks(begin, name):
    program = begin(name, "work")
    tasks, files = tasks_of(program)
    runs = done(program, tasks)
    assert program.files() == files
    assert f"Task {('one', 'two')[len(tasks) - 1]} is done." in runs[-1].out
    sent = main(program, program.at.requests())
    history_is_whole(program, sent, "work")
    nothing_leaked(program, runs, "work")
    if program.at.managed:
        said = [tuple(entry["said"]) for entry in sent]
        steps = range(len(SCRIPTS["work"].steps) if program.resumes else 5)
        hops = [(step, hop) for step in steps for hop in range(len(SCRIPTS["work"].steps[step]))]
        assert said == hops, "every hop is asked for once"
        starts = r'plimsoll_delimiter_calls_total\{action="start",outcome="ok"\} (\d+)'
        print(re.findall(r"plimsoll_delimiter_calls_total.*", program.at.metrics()))


@every()
def test_a_low_ceiling_is_held(begin, name):
    program = begin(name, "chapters", "--budget", str(ALL[name].ceiling))
    runs = done(program, [LONG])
    assert program.files() == {"notes.txt": "first\n", "chapters.txt": "read\n"}
    sent = main(program, program.at.requests())
    nothing_leaked(program, runs, "chapters")
    print(name, max(entry["prompt"] for entry in sent), len(sent))
    if program.at.managed:
        metrics = program.at.metrics()
        print([l for l in metrics.splitlines() if 'delimiter_calls' in l or 'passes_total' in l or 'unmet' in l or 'recall_total' in l])
        assert counted(metrics, "plimsoll_passes_total") >= 1
        assert counted(metrics, "plimsoll_budget_unmet_total") == 0


@every("mini")
def test_faults_are_survived(begin, name):
    faults = ["429@1", "500@3", "529@5"] if ALL[name].dialect == "messages" else ["429@1", "500@3"]
    program = begin(name, "work", provider=[f"--fault={fault}" for fault in faults])
    tasks, files = tasks_of(program)
    runs = done(program, tasks)
    assert program.files() == files
    sent = program.at.requests()
    history_is_whole(program, main(program, sent), "work")
    nothing_leaked(program, runs, "work")
    assert [entry["fault"] for entry in sent if entry.get("fault")] == [f[:3] for f in faults]


@every("mini")
def test_a_cut_stream_is_gone_on_with(begin, name):
    program = begin(name, "work", provider=["--fault=cut@2"])
    tasks, files = tasks_of(program)
    run = program.run(ONE)
    print("CUT", name, run.code, run.seconds, program.files(), [(e.get("said"), e.get("fault"), e["refusal"]) for e in program.at.requests()], run.tail()[-600:])


@every()
def test_a_full_window(begin, name):
    program = begin(name, "chapters", provider=["--window", str(ALL[name].ceiling*2)])
    run = program.run(LONG)
    print("WINDOW", name, run.code, run.seconds, program.files(), [(e.get("said"), e.get("fault"), e["refusal"], e.get("prompt")) for e in program.at.requests()], run.tail()[-600:])

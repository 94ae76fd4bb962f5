"""Real agents run their tasks to the end, and neither what they show nor what they keep holds
anything of the proxy. `--direct` leaves the proxy out: each must end in the same way."""

import json
import re

import pytest

import chat
import messages
import responses
from conftest import PUBLISHED
from programs import ALL, KNOWN
from scripts import (
    DELEGATE_CHILD,
    DELEGATE_FILES,
    GUIDANCE,
    HIDDEN,
    RECALL,
    SCRIPTS,
    UNSEEN,
    WORK_FILES,
    WORK_FILES_ONE,
    hidden_ids,
)

DIALECTS = {"chat": chat, "responses": responses, "messages": messages}
# The steps of the first task, and what the other script leaves on disk.
STEPS_ONE = 5
CHAPTERS_FILES = {"notes.txt": "first\n", "chapters.txt": "read\n"}
ONE, TWO = "[task one] Add a line to notes.txt and verify it.", "[task two] Add one more line."
LONG, AGAIN = "[task long] Read all chapters.", "[task again] Is there more?"


@pytest.fixture
def begin(stand, tmp_path):
    """A function that makes an agent with a script, and with flags of the proxy and provider."""

    def begin(name, script, *flags, provider=(), env=PUBLISHED, direct=False, **more):
        agent = (ALL | KNOWN)[name]
        own = ["--agent", agent.name, "--root", tmp_path / "repository"]
        at = stand(script, *flags, provider_flags=[*own, *provider], direct=direct, env=env)
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
    words = [*hidden_ids(SCRIPTS[script]), UNSEEN, HIDDEN, GUIDANCE]
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


def statuses(metrics):
    """What the agent's requests were answered with."""
    requests = r'^plimsoll_http_requests_total{.*status="(\d+)"}'
    return set(re.findall(requests, metrics, re.MULTILINE))


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
        steps = SCRIPTS["work"].steps[: None if program.resumes else STEPS_ONE]
        hops = [(step, hop) for step, hops in enumerate(steps) for hop in range(len(hops))]
        assert said == hops, "every hop is asked for once"
        metrics = program.at.metrics()
        starts = 4 if program.resumes else 3
        for action, outcome, times in (
            ("start", "ok", starts),
            ("end", "ok", 3),
            ("end", "refused", 1),
        ):
            labels = f'action="{action}",outcome="{outcome}"'
            assert f"plimsoll_delimiter_calls_total{{{labels}}} {times}\n" in metrics


@every()
def test_a_low_ceiling_is_held(begin, name):
    program = begin(name, "chapters", "--budget", str(ALL[name].ceiling))
    runs = done(program, [LONG])
    assert program.files() == CHAPTERS_FILES
    main(program, program.at.requests())
    nothing_leaked(program, runs, "chapters")
    if program.at.managed:
        metrics = program.at.metrics()
        assert counted(metrics, "plimsoll_passes_total") >= 1
        assert counted(metrics, "plimsoll_budget_unmet_total") == 0
        assert counted(metrics, "plimsoll_fail_open_total") == 0
        assert 'plimsoll_recall_total{outcome="ok"} 1' in metrics


@pytest.mark.parametrize("offer", ["start", "line"])
@every()
def test_guidance_comes_with_the_first_pass(begin, name, offer):
    """Until then the tools wait, or the agent's own requests go up; then they stay."""
    env = {"PLIMSOLL__DELIMITER__OFFER": offer}
    program = begin(name, "chapters", "--budget", str(ALL[name].ceiling), env=env)
    runs = done(program, [LONG])
    assert program.files() == CHAPTERS_FILES
    nothing_leaked(program, runs, "chapters")
    sent = program.at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    if program.at.managed:
        own = [entry["body"] for entry in sent if entry.get("said", [0])[0] >= 0]
        offered = DIALECTS[program.dialect].offered
        fronts = [(offered(body)[:2] == [HIDDEN, RECALL], GUIDANCE in json.dumps(body)) for body in own]
        changes = [front for front, before in zip(fronts, [None, *fronts]) if front != before]
        assert changes == [(offer == "start", False), (True, True)]
        metrics = program.at.metrics()
        assert 'plimsoll_guided_total{reason="pass"} 1' in metrics
        assert counted(metrics, "plimsoll_fail_open_total") == 0


@every()
def test_faults_are_survived(begin, name):
    faults = ["429@1", "500@3"] + ["529@5"] * (ALL[name].dialect == "messages")
    program = begin(name, "work", provider=[f"--fault={fault}" for fault in faults])
    tasks, files = tasks_of(program)
    runs = done(program, tasks)
    assert program.files() == files
    sent = program.at.requests()
    history_is_whole(program, main(program, sent), "work")
    nothing_leaked(program, runs, "work")
    assert [entry["fault"] for entry in sent if entry.get("fault")] == [f[:3] for f in faults]


@every()
def test_errors_in_later_hops(begin, name):
    """Before the agent has heard anything, behind hops that told it nothing, and behind text until
    the proxy's own tries are used up: it asks again, and the task comes to its end."""
    faults = ["500@0.1", "429@3.2", *["500@4.1"] * 5]
    program = begin(name, "work", provider=[f"--fault={fault}" for fault in faults])
    runs = done(program, [ONE])
    assert program.files() == WORK_FILES_ONE
    sent = program.at.requests()
    own = main(program, sent)
    history_is_whole(program, own, "work")
    nothing_leaked(program, runs, "work")
    assert [entry["fault"] for entry in sent if entry.get("fault")] == [f[:3] for f in faults]


@every("mini")
def test_a_stream_that_is_cut_behind_a_call(begin, name):
    # What is broken off may have been run, and is run again: so it does nothing that adds up.
    program = begin(name, "work", provider=["--fault=cut@3.2"])
    run = program.run(ONE)
    assert [entry.get("fault") for entry in program.at.requests()].count("cut") == 1
    main(program, program.at.requests())
    nothing_leaked(program, [run], "work")
    assert run.code == 0, run.tail()
    assert program.files() == WORK_FILES_ONE


@every()
def test_a_window_that_is_full(begin, name):
    """Behind the proxy no agent learns that a request was too long."""
    program = begin(name, "chapters", provider=["--window", str(ALL[name].window)])
    run = program.run(LONG)
    sent = program.at.requests()
    main(program, sent)
    nothing_leaked(program, [run], "chapters")
    assert "window" in [entry.get("fault") for entry in sent]
    if program.at.managed:
        assert run.code == 0, run.tail()
        assert program.files() == CHAPTERS_FILES
    else:
        assert run.code == program.code_of_full_window, run.tail()


@every("mini")
def test_an_agent_that_summarises_its_session(begin, name):
    program = begin(name, "chapters", compact_at=20_000)
    runs = done(program, [LONG] if name != "claude" else [LONG, "/compact", AGAIN])
    assert program.files() == CHAPTERS_FILES
    sent = program.at.requests()
    own = main(program, sent)
    nothing_leaked(program, runs, "chapters")
    asides = [place for place, entry in enumerate(sent) if entry not in own]
    assert [place for place in asides if place > 1], "no summary was asked for"


def bound(begin, name, direct=False):
    """Runs a long session and resumes it, over a provider that binds each thought to all before it."""
    budget = ("--budget", str((ALL | KNOWN)[name].ceiling))
    program = begin(name, "chapters", *budget, provider=["--bound"], direct=direct)
    runs = done(program, [LONG, AGAIN])
    assert program.files() == CHAPTERS_FILES
    assert "There is nothing left to do." in runs[-1].out
    nothing_leaked(program, runs, "chapters")
    return program, program.at.requests()


@pytest.mark.parametrize("name", ["claude", "opencode-messages", "pi-messages", "pi-anthropic"])
def test_thoughts_that_are_bound(begin, name, request):
    """A pass changes what stands before a thought: the provider refuses once, and the program never
    hears of it."""
    if request.config.getoption("--direct"):
        pytest.skip("without the proxy nothing changes")
    program, sent = bound(begin, name)
    main(program, [entry for entry in sent if not entry["refusal"]])
    metrics = program.at.metrics()
    assert counted(metrics, "plimsoll_passes_total") >= 2
    assert counted(metrics, "plimsoll_fail_open_total") == 0
    assert statuses(metrics) == {"200"}

    refused = [place for place, entry in enumerate(sent) if entry["refusal"]]
    if name in KNOWN:
        assert refused == [], "they ask to have such thoughts dropped"
        return
    assert len(refused) == 1
    assert "bound to a different conversation" in sent[refused[0]]["refusal"]
    assert 'plimsoll_retries_total{reason="thoughts"} 1\n' in metrics
    later = sent[refused[0] + 1 :]
    assert [entry["invalid"] for entry in later] == [[]] * len(later)
    said = [message for message in later[-1]["body"]["messages"] if message["role"] == "assistant"]
    assert said[-1]["content"][0]["type"] == "thinking", "between two passes thoughts stay"
    pairs = zip(later, later[1:])
    lost = [now["said"] for before, now in pairs if now["valid"] != before["valid"] + 1]
    assert len(lost) < counted(metrics, "plimsoll_passes_total"), "only a pass ends thoughts"


@pytest.mark.parametrize("name", ["claude", "pi-messages"])
def test_thoughts_that_are_bound_to_what_is_summarised(begin, name, request):
    """What an agent keeps beside its own summary was thought behind something else. Alone, Claude Code
    is refused and asks again, and pi ends with the error; behind the proxy they hear of nothing."""
    if request.config.getoption("--direct"):
        pytest.skip("pi ends there without the proxy")
    program = begin(name, "chapters", provider=["--bound"], compact_at=20_000)
    runs = done(program, [LONG, AGAIN] if name != "claude" else [LONG, "/compact", AGAIN])
    assert "There is nothing left to do." in runs[-1].out
    assert program.files() == CHAPTERS_FILES
    nothing_leaked(program, runs, "chapters")
    refused = [entry["refusal"] for entry in program.at.requests() if entry["refusal"]]
    assert len(refused) == 1
    assert "bound to a different conversation" in refused[0]
    assert statuses(program.at.metrics()) == {"200"}


@pytest.mark.parametrize("name", ["claude", *KNOWN])
def test_thoughts_that_are_bound_without_the_proxy(begin, name):
    """The agents change nothing between two requests that the provider compares."""
    program, sent = bound(begin, name, direct=True)
    own = main(program, sent)
    assert [entry["invalid"] for entry in own] == [[]] * len(own)
    assert [entry["valid"] for entry in own] == list(range(len(own)))


# How a sub-agent's requests are told: the header that names it. Copilot sends none that does.
CHILDREN = {
    "opencode": "x-session-id",
    "codex": "thread-id",
    "claude": "x-claude-code-agent-id",
    "copilot": None,
}
DELEGATES = [name for name, agent in ALL.items() if agent.name in CHILDREN]


@pytest.mark.parametrize("name", DELEGATES)
def test_sub_agents_that_run_at_once(begin, name, request):
    """Each has a session of its own behind the proxy, whose parent is known; what the one of them
    says stays out of the others."""
    program = begin(name, "delegate")
    runs = done(program, ["[task lead] Look around and say so."])
    assert program.files() == DELEGATE_FILES
    own = main(program, program.at.requests())
    nothing_leaked(program, runs, "delegate")

    sessions = {}
    for entry in own:
        child = entry["said"][0] >= DELEGATE_CHILD
        session = child_of(program, entry) if child else "lead"
        sessions.setdefault(session, []).append(entry)
    assert len(sessions) == 3, "one conversation leads two"
    for session, sent in sessions.items():
        steps = range(DELEGATE_CHILD) if session == "lead" else range(DELEGATE_CHILD, 6)
        script = SCRIPTS["delegate"].steps
        hops = [[step, hop] for step in steps for hop in range(len(script[step]))]
        assert [entry["said"] for entry in sent] == (
            hops if program.at.managed else [place for place in hops if not hidden(script, place)]
        )
        calls, results = DIALECTS[program.dialect].exchanged(sent[-1]["body"])
        assert set(calls) == results
        ours = {id for id, called in calls.items() if called in (HIDDEN, RECALL)}
        due = {id for id in hidden_ids(SCRIPTS["delegate"]) if place(id)[0] in steps}
        assert ours == (due if program.at.managed else set())

    if program.at.managed:
        family = families(request.node.proxy_log.read_text())
        if CHILDREN[program.name] is None:
            # In Responses all of them have one `prompt_cache_key`, which makes them one session.
            assert {parent for _, parent in family} == {None}
            assert len(family) == (1 if program.dialect == "responses" else 3)
            return
        lead = {name for name, parent in family if parent is None}
        assert len(lead) == 1, "one session has no parent"
        assert {parent for _, parent in family} == lead | {None}
        assert len({name for name, _ in family}) == 3


def child_of(program, entry):
    """What tells one sub-agent's requests from another's: a header, or the words of its task."""
    if header := CHILDREN[program.name]:
        return entry["headers"].get(header, "")
    return re.search(r"\[task child\] Look around\. Part (\w+)\.", json.dumps(entry["body"]))[1]


def hidden(script, place):
    step, hop = place
    return script[step][hop].hidden_only()


def families(log):
    """The sessions of a log that took a part in the script, each with its parent."""
    turns = [line for line in log.splitlines() if "gen_ai.conversation.id" in line]
    known = set()
    for turn in turns:
        session = re.search(r'gen_ai\.conversation\.id["=: ]+(\w+)', turn)
        parent = re.search(r'parent_session["=: ]+(\w+)', turn)
        known.add((session[1], parent and parent[1]))
    return known

"""Real agents go on from files that the console built of other sessions: what was chosen is in their
next request, and what was not chosen is not."""

import json
import re
import urllib.request

import pytest

from conftest import get
from programs import ALL, ClaudeCode, Codex, Opencode, Pi
from scripts import UNSEEN

# One of each agent, and one whose provider speaks another dialect.
NAMES = ["claude", "codex", "codex-provider", "pi-chat", "pi-messages", "opencode-chat", "opencode-messages"]
ONE, TWO = "[task one] Add a line to notes.txt and verify it.", "[task two] Add one more line."
FORMS = {ClaudeCode: "claude", Codex: "codex", Pi: "pi", Opencode: "opencode"}


def form_of(agent):
    return next(form for kind, form in FORMS.items() if issubclass(agent, kind))


def built(at, form, **ask):
    """The one session of a proxy, as a file."""
    sessions = json.loads(get(f"{at.admin_url}/api/sessions"))["sessions"]
    session = next(row["session"] for row in sessions if row["turn"] > 2)
    request = urllib.request.Request(
        f"{at.admin_url}/api/sessions/{session}/build",
        json.dumps({"format": form, **ask}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def resuming(program, form, file):
    """Puts a file where it is said to belong; what its command says after the agent's name."""
    place = {
        "claude": program.home / ".claude/projects" / re.sub(r"\W", "-", str(program.repository)),
        "codex": program.home / ".codex/sessions",
    }.get(form, program.repository)
    assert bool(file["put"]) == (place != program.repository)
    place.mkdir(parents=True, exist_ok=True)
    (place / file["name"]).write_text(file["text"])
    return file["run"].split()


def commands(program, form, file, task):
    """The command that the file came with, without a terminal and without questions."""
    said, plain = resuming(program, form, file), program.command(task, False)
    if form == "claude":
        return [[*plain[:3], *said[1:], *plain[3:]]]
    if form == "codex":
        return [[*plain[:-1], *said[1:], task]]
    if form == "pi":
        return [[*plain[:-2], *said[1:], *plain[-2:]]]
    border = said.index("&&")
    flags = ["tests/scripted" if flag == "PROVIDER/MODEL" else flag for flag in said[border + 2 :]]
    return [[plain[0], *said[1:border]], [plain[0], "run", *flags, task]]


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_goes_on_from_a_file(stand, tmp_path, name, request):
    if request.config.getoption("--direct"):
        pytest.skip("the console is the proxy's")
    agent, form = ALL[name], form_of(ALL[name])
    first = tmp_path / "first"
    first.mkdir()
    root = ["--agent", agent.name, "--root", first / "repository"]
    at = stand("work", provider_flags=root)
    begun = agent(at, first)
    for task in (ONE, TWO):
        run = begun.run(task, resumed=task == TWO)
        assert run.code == 0, run.tail()
    # Turn 2 reads a file; turns 3 and 4, which change it, and the second task are left out.
    file = built(at, form, turns=[[1, 2], [5, 5]])
    assert file["missing"] == []

    second = tmp_path / "second"
    second.mkdir()
    program = agent(at, second)
    before = len(at.requests())
    lines = commands(program, form, file, TWO)
    for line in lines:
        program.command = lambda task, resumed, line=line: line
        run = program.run(TWO)
        assert run.code == 0, run.tail()
    assert "Task two is done." in run.out
    assert program.files()["notes.txt"] == "first\nthird\n"
    sent = [entry for entry in at.requests()[before:] if entry.get("said", [0])[0] >= 0]
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    body = json.dumps(sent[0]["body"])
    places = [body.index(words) for words in ("[task one]", "First I look around.", "There are files to read.", "[task two]")]
    assert places == sorted(places)
    assert "Task one is done." in body and "1 notes.txt" in body
    for left in ("Now I change one.", "And I verify.", UNSEEN):
        assert left not in body, left

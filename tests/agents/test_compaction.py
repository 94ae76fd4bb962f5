"""Real agents summarise their own sessions, and what the proxy had evicted before is recalled after
it: from memory, or behind a crash from the store, where that keeps it."""

import json
import re
import shutil
import socket
import subprocess
import time

import pytest

from compacting import compact
from conftest import PUBLISHED, free_ports
from programs import ALL
from scripts import (
    BY_PATH,
    BY_SEARCH,
    MARKED_FILES,
    PART_LINES,
    RECALL,
    SCRIPTS,
    call_id,
    marked_line,
)
from test_programs import DIALECTS, counted, done, main, nothing_leaked, statuses

# One of each agent. codex asks a provider of its configuration for a summary that anybody can read.
NAMES = ["claude", "codex-provider", "opencode-chat", "pi-chat"]
# Those that start fast.
FAST = [name for name in NAMES if name != "opencode-chat"]
TASK, BACK = "[task marks] Read both files.", "[task back] What was said of setting 250?"
MORE = "[task more] Read the rest, and say it once more."
# The steps of the script that recall: by a path and then by a search, and by that search again.
RECALLS = SCRIPTS["marks"].tasks["[task back]"]
RECALLS_AGAIN = len(SCRIPTS["marks"].steps) - 2
KEPT = {"PLIMSOLL__STORE__KEEP_EVICTED": "true", "PLIMSOLL__STORE__KEEP_CONTENT": "30d"}
# Where a result stands in any dialect: its call's id, and what it says.
RESULT = (("tool_call_id", "content"), ("call_id", "output"), ("tool_use_id", "content"))
# What begins a compressed value of the store: version, kind, two lengths, and the compressor's mark.
COMPRESSED = re.compile(rb"\x01\x01.{4}(.{4})(?=\x28\xb5\x2f\xfd)", re.DOTALL)
DEADLINE = 20.0


@pytest.fixture
def begin(stand, tmp_path, request):
    """A function that makes an agent with the files in its repository."""
    if request.config.getoption("--direct"):
        pytest.skip("about the proxy")

    def begin(name, **env):
        agent = ALL[name]
        own = ["--agent", agent.name, "--root", tmp_path / "repository"]
        budget = ("--budget", str(agent.ceiling))
        program = agent(stand("marks", *budget, provider_flags=own, env=PUBLISHED | env), tmp_path)
        for file, text in MARKED_FILES.items():
            (program.repository / file).write_text(text)
        if agent.name == "pi":
            # Else nothing is old enough.
            settings = {"compaction": {"enabled": True, "keepRecentTokens": 4_000}}
            program.write(".pi/agent/settings.json", json.dumps(settings))
        return program

    return begin


@pytest.fixture
def redis(tmp_path):
    """The address of a Redis server that ends with the test."""
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed; Debian's package is `redis-server`")
    [port] = free_ports(1)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with (tmp_path / "redis.log").open("w") as log:
        server = subprocess.Popen([*command, "--dir", tmp_path], stdout=log, stderr=log)
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert time.monotonic() < deadline, (tmp_path / "redis.log").read_text()
            time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}"
    server.kill()
    server.wait()


def evicted_and_dropped(program):
    """Has an agent read the files and summarise its session: two lines were shown, then evicted, and
    are dropped by itself at last."""
    runs = done(program, [TASK])
    shown = [json.dumps(entry["body"]) for entry in main(program, program.at.requests())]
    for line in (marked_line(BY_PATH), marked_line(BY_SEARCH)):
        assert any(line in body for body in shown), "it was read"
        assert line not in shown[-1], "a pass evicted it"
    before = len(program.at.requests())
    compact(program)
    asked = program.at.requests()[before:]
    assert asked and all(entry["said"][0] < 0 for entry in asked), "it asks for a summary alone"
    return runs


def recalled(program, runs):
    """Goes on in the new history, where the model recalls by path and by a search."""
    before = len(program.at.requests())
    run = program.run(BACK, resumed=True)
    assert run.code == 0, run.tail()
    assert "Task back is done." in run.out
    assert (program.repository / "found.txt").read_text() == "found\n"
    sent = main(program, program.at.requests()[before:])
    hops = [[RECALLS, hop] for hop in range(3)]
    assert [entry["said"] for entry in sent] == [*hops, [RECALLS + 1, 0]]
    begins = json.dumps(sent[0]["body"])
    assert not [line for line in (BY_PATH, BY_SEARCH) if marked_line(line) in begins]
    by_path, by_search = (newest_result(program, entry) for entry in sent[1:3])
    assert not [line for line in range(PART_LINES) if marked_line(line) not in by_path]
    assert marked_line(BY_SEARCH) in by_search
    nothing_leaked(program, [*runs, run], "marks")
    for place, content in program.kept().items():
        assert b"recalled first.txt" not in content, place
    metrics = program.at.metrics()
    assert statuses(metrics) == {"200"}
    assert counted(metrics, "plimsoll_fail_open_total") == 0


def newest_result(program, entry):
    """What the model is told of the hidden call of the hop before."""
    step, hop = entry["said"]
    id = call_id(step, hop - 1, 0)
    calls, _ = DIALECTS[program.dialect].exchanged(entry["body"])
    assert calls[id] == RECALL
    return dict(results(entry["body"]))[id]


def results(value):
    """All results of calls in a request, by the id of the call."""
    if isinstance(value, dict):
        named = [(id, said) for id, said in RESULT if id in value and said in value]
        yield from ((value[id], value[said]) for id, said in named)
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from results(part)


def holds(directory, line):
    """Whether a file below a directory has a line, be it in a value that is compressed."""
    files = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    assert any(COMPRESSED.search(file) for file in files), "the proxy has stored something"
    return any(line.encode() in part for file in files for part in (file, *plain(file)))


def plain(file):
    """The values of a file that are compressed, as they were before."""
    for value in COMPRESSED.finditer(file):
        packed = file[value.end() :][: int.from_bytes(value[1], "big")]
        # The engine's own file has large ones in pieces, the archive has them whole.
        yield subprocess.run(["zstd", "-dcq"], input=packed, capture_output=True).stdout


@pytest.mark.parametrize("name", NAMES)
def test_what_was_evicted_is_recalled_from_memory(begin, name, tmp_path):
    program = begin(name)
    runs = evicted_and_dropped(program)
    assert not holds(tmp_path / "data", marked_line(BY_PATH))
    recalled(program, runs)


def test_what_was_evicted_is_recalled_behind_a_pass_of_the_new_history(begin):
    """pi names no session, and the calls that it keeps tie records of its old history to the new one."""
    program = begin("pi-chat")
    evicted_and_dropped(program)
    run = program.run(MORE, resumed=True)
    assert run.code == 0, run.tail()
    sent = main(program, program.at.requests())
    line = marked_line(BY_SEARCH)
    for place, holds in ((0, False), (1, True)):
        [entry] = [entry for entry in sent if entry["said"] == [RECALLS_AGAIN, place]]
        assert (line in json.dumps(entry["body"])) == holds


@pytest.mark.parametrize("name", FAST)
def test_what_was_evicted_outlives_a_crash(begin, name, tmp_path):
    program = begin(name, **KEPT)
    runs = evicted_and_dropped(program)
    assert holds(tmp_path / "data", marked_line(BY_PATH)), "it was told to keep it"
    program.at.crash()
    recalled(program, runs)


@pytest.mark.parametrize("name", FAST)
def test_what_was_evicted_outlives_a_crash_in_a_shared_store(begin, name, redis):
    shared = {"PLIMSOLL__STORE__BACKEND": "redis", "PLIMSOLL__STORE__URL": redis}
    program = begin(name, **KEPT, **shared, PLIMSOLL__TENANT__KEY="0123456789abcdef" * 2)
    runs = evicted_and_dropped(program)
    program.at.crash()
    recalled(program, runs)

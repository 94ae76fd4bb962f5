"""`plimsoll run`: an agent that reads its address from the environment works through the proxy, its
exit code is the command's, and what was saved is said at the end. What the keyboard of its terminal
sends is the agent's own."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import time

import pytest

from conftest import HERE, PUBLISHED, binary

AGENT = """
import sys
sys.path.insert(0, {here!r})
import openai
from test_sdk import SYSTEM, ask_whole, work
api = openai.OpenAI(api_key="sk-tests", max_retries=0)
messages = [SYSTEM, {{"role": "user", "content": "[task one] Raise the timeout."}}]
print(work(api, ask_whole, messages)[-1][0])
sys.exit(3)
"""


@pytest.fixture
def provider(stand):
    at = stand("sdk")
    if not at.managed:
        pytest.skip("about the proxy")
    return at


def run(at, tmp_path, *command):
    run = [binary(), "run", "--upstream", at.provider_url, "--data", tmp_path / "run", "--"]
    return subprocess.run(
        [*run, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **PUBLISHED},
    )


def test_an_agent_runs_behind_the_proxy(provider, tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(AGENT.format(here=str(HERE)))
    done = run(provider, tmp_path, sys.executable, script)
    assert done.stdout == "The change is written.\n\nTask one is done.\n", done.stderr
    assert done.returncode == 3, "the exit code is the agent's"
    assert re.search(r"plimsoll: 4 requests; \d+ tokens asked for, \d+ sent", done.stderr)
    names = [tool["function"]["name"] for tool in provider.requests()[0]["body"]["tools"]]
    assert names[:2] == ["delimiter", "recall"]


def test_each_agent_is_told_in_its_own_way(provider, tmp_path):
    for name, wanted in (
        ("claude", r"ANTHROPIC_BASE_URL=http://127\.0\.0\.1:\d+$"),
        ("codex", r'argument -c\nargument openai_base_url="http://127\.0\.0\.1:\d+/v1"$'),
        ("opencode", r'OPENCODE_CONFIG_CONTENT=\{"provider":\{"anthropic":.*127\.0\.0\.1:\d+/v1'),
        ("pi", r"argument -e\nargument /\S+\.js$"),
        ("copilot", r"COPILOT_PROVIDER_BASE_URL=http://127\.0\.0\.1:\d+/v1$"),
        ("mini", r"OPENAI_API_BASE=http://127\.0\.0\.1:\d+/v1$"),
    ):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nenv\nfor a in \"$@\"; do echo \"argument $a\"; done\n")
        program.chmod(0o755)
        done = run(provider, tmp_path, program, "--flag")
        assert re.search(wanted, done.stdout, re.MULTILINE), done.stdout
        assert done.stdout.endswith("argument --flag\n"), "the agent's own arguments come last"
        assert "nothing was managed" in done.stderr


def test_a_program_that_is_not_there_is_named(provider, tmp_path):
    done = run(provider, tmp_path, "no-such-agent")
    assert done.returncode == 127 and "can't run no-such-agent" in done.stderr


COUNTS = """
import pathlib, signal, sys, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
pathlib.Path("ready").touch()
while not pathlib.Path("end").exists():
    time.sleep(0.02)
pathlib.Path("heard").write_text(str(len(heard)))
sys.exit(4)
"""


def test_an_interrupt_from_the_keyboard_is_the_agents_own(tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(COUNTS)
    arguments = ["--grace", "100ms", "--upstream", "http://127.0.0.1:9/v1", "--", sys.executable]
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
        os.execv(binary(), [str(binary()), "run", *arguments, str(script)])
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline, "the agent did not start"
        time.sleep(0.02)
    os.write(terminal, b"\x03")
    # Were the interrupt handed on as well, it would be heard twice; or the agent killed by now.
    time.sleep(0.5)
    (tmp_path / "end").touch()
    with contextlib.suppress(OSError):
        # A terminal whose last user has gone reads as an error.
        while os.read(terminal, 1024):
            pass
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert (tmp_path / "heard").read_text() == "1"
    assert os.waitstatus_to_exitcode(status) == 4

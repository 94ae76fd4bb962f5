"""Agents that nobody has pointed at the proxy: `plimsoll setup` and `plimsoll run` do that, each agent
ends its task through the proxy, and `plimsoll setup --undo` leaves its home as it was."""

import json
import subprocess

import pytest

from conftest import PUBLISHED, binary
from programs import (
    KEY,
    ClaudeCode,
    Codex,
    CopilotChat,
    Mini,
    OpencodeResponses,
    PiResponses,
)
from scripts import WORK_FILES_ONE

ONE = "[task one] Add a line to notes.txt and verify it."
# A model that the agents' own lists know.
KNOWN = "gpt-5"


class BareOpencode(OpencodeResponses):
    """Of its own provider, with the key that everybody sets."""

    def configure(self):
        # Without its schema, opencode would write that into the file.
        settings = {"$schema": "https://opencode.ai/config.json", "model": f"openai/{KNOWN}"}
        self.write(".config/opencode/opencode.json", json.dumps(settings))

    def environment(self):
        own = {"OPENAI_API_KEY": KEY, "OPENCODE_PERMISSION": '{"*": "allow"}'}
        return {k: v for k, v in super().environment().items() if k != "OPENCODE_CONFIG"} | own


class BareCodex(Codex):
    def provider(self):
        return ""


class BareClaude(ClaudeCode):
    def environment(self):
        return {k: v for k, v in super().environment().items() if k != "ANTHROPIC_BASE_URL"}


class BarePi(PiResponses):
    def configure(self):
        pass

    def environment(self):
        return super().environment() | {"OPENAI_API_KEY": KEY}

    def command(self, task, resumed):
        return [self.executable("pi"), "--provider", "openai", "--model", KNOWN, "-p", task]


class BareCopilot(CopilotChat):
    def environment(self):
        own = ("COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_API_KEY")
        rest = {k: v for k, v in super().environment().items() if k not in own}
        return rest | {"OPENAI_API_KEY": KEY}


class BareMini(Mini):
    def environment(self):
        return {k: v for k, v in super().environment().items() if k != "OPENAI_API_BASE"}


BARE = [BareOpencode, BareCodex, BareClaude, BarePi, BareCopilot, BareMini]


def by_name(agent):
    return agent.name


@pytest.fixture
def begin(stand, tmp_path):
    def begin(agent, **more):
        own = ["--agent", agent.name, "--root", tmp_path / "repository"]
        at = stand("work", provider_flags=own, **more)
        return agent(at, tmp_path)

    return begin


def plimsoll(program, *arguments):
    environment = {"HOME": str(program.home), "PATH": "/usr/bin:/bin", **program.environment()}
    done = subprocess.run(
        [binary(), *arguments], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def settings(program):
    """The agent's own settings: all files of its home that stand there before it has run."""
    return {path: content for path, content in program.kept().items() if ".local" not in path.parts}


@pytest.mark.parametrize("agent", [one for one in BARE if one is not BareCopilot], ids=by_name)
def test_setup_leads_an_agent_to_the_proxy_and_back(begin, agent):
    program = begin(agent)
    if not program.at.managed:
        pytest.skip("about the proxy")
    before = settings(program)
    plimsoll(program, "setup", agent.name, "--proxy", program.at.base_url)
    assert settings(program) != before
    run = program.run(ONE)
    assert run.code == 0, run.tail()
    assert program.files() == WORK_FILES_ONE
    asked = program.at.requests()
    assert asked and all(entry["refusal"] is None for entry in asked)
    said = plimsoll(program, "setup", agent.name, "--undo")
    assert "stays" not in said
    after = settings(program)
    # What the agent itself has made meanwhile is its own.
    assert {path: after.get(path) for path in before} == before
    address = program.at.base_url.removesuffix("/v1").encode()
    config = {path: text for path, text in after.items() if path.suffix in {".json", ".toml", ".jsonc"}}
    own = {"opencode.json", "config.toml", "settings.json", "models.json", ".env"}
    assert not [path for path, text in config.items() if path.name in own and address in text]


@pytest.mark.parametrize("agent", BARE, ids=by_name)
def test_run_tells_each_agent_the_address(begin, agent, monkeypatch):
    program = begin(agent, direct=True)
    before = settings(program)
    command = program.command
    wrap = [binary(), "run", "--upstream", program.at.provider_url, "--"]
    monkeypatch.setattr(program, "command", lambda *task: [*wrap, *command(*task)])
    environment = program.environment() | PUBLISHED
    monkeypatch.setattr(program, "environment", lambda: environment)
    run = program.run(ONE)
    assert run.code == 0, run.tail()
    assert program.files() == WORK_FILES_ONE
    assert "requests; " in run.err, run.tail()
    after = settings(program)
    assert {path: after.get(path) for path in before} == before

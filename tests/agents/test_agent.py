"""A real agent, mini-swe-agent, runs a task to its end through the proxy."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

MINI = Path(sysconfig.get_path("scripts")) / "mini"
LIMIT = 180


def run_mini(at, home, repository):
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TERM": "dumb",
        "OPENAI_API_KEY": "sk-tests",
        "OPENAI_API_BASE": at.base_url,
        "MSWEA_GLOBAL_CONFIG_DIR": str(home),
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    trajectory = home / "trajectory.json"
    task = "[task agent] Add a second line to notes.txt."
    command = [MINI, "-y", "--exit-immediately", "-m", "openai/scripted", "-o", trajectory]
    done = subprocess.run(
        [*command, "-t", task],
        cwd=repository,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return json.loads(trajectory.read_text()), done.stdout


def test_mini_swe_agent_finishes_its_task(stand, tmp_path):
    at = stand("agent")
    home, repository = tmp_path / "home", tmp_path / "repository"
    home.mkdir()
    repository.mkdir()
    (repository / "notes.txt").write_text("first\n")

    trajectory, shown = run_mini(at, home, repository)

    assert (repository / "notes.txt").read_text() == "first\nsecond\n"
    assert trajectory["info"]["exit_status"] == "Submitted"
    assert trajectory["info"]["submission"] == "first\nsecond\n"
    commands = [
        json.loads(call["function"]["arguments"])["command"]
        for message in trajectory["messages"]
        for call in message.get("tool_calls") or []
    ]
    assert len(commands) == 5, "five visible calls, each run once"
    assert "delimiter" not in json.dumps(trajectory) + shown

    sent = at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    if at.managed:
        names = [[tool["function"]["name"] for tool in entry["body"]["tools"]] for entry in sent]
        assert names == [["delimiter", "recall", "bash"]] * len(sent)
        assert len(sent) == 8, "five visible answers, three hops that held hidden calls alone"

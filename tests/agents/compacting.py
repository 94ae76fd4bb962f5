"""How each agent is made to summarise its newest session at once, whatever usage it was told. It
never judges what comes of that."""

import json
import os
import queue
import subprocess
import threading
import time
import urllib.request

from conftest import free_ports
from programs import KEY, MODEL

PATIENCE = 60.0


def messages(process):
    """What it writes to its stdout, as it comes: a value a line."""
    heard = queue.Queue()

    def read():
        for line in process.stdout:
            if line.startswith("{"):
                heard.put(json.loads(line))

    threading.Thread(target=read, daemon=True).start()
    return heard


def say(process, message):
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def await_message(heard, wanted):
    deadline = time.monotonic() + PATIENCE
    while True:
        message = heard.get(timeout=max(0.0, deadline - time.monotonic()))
        if wanted(message):
            return message


class Door:
    """A process of an agent that takes orders, and ends with the block."""

    def __init__(self, program, *command, **streams):
        self.process = program.start([program.executable(program.name), *command], **streams)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        os.killpg(self.process.pid, 15)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()


PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
SILENT = dict.fromkeys(PIPES, subprocess.DEVNULL)


def pi(program):
    model = ["--provider", "tests", "--model", MODEL]
    with Door(program, *model, "--mode", "rpc", "-c", **PIPES) as process:
        heard = messages(process)
        say(process, {"id": "1", "type": "compact"})
        done = await_message(heard, lambda message: message.get("command") == "compact")
        assert done["success"], done


def codex(program):
    (program.home / ".codex/auth.json").write_text(json.dumps({"OPENAI_API_KEY": KEY}))
    # The name of a session's file ends with its id.
    session = max(program.home.rglob("rollout-*.jsonl"), key=lambda path: path.stat().st_mtime)
    thread = {"threadId": session.stem[-36:]}
    client = {"clientInfo": {"name": "tests", "title": "tests", "version": "1"}}
    asked = [("initialize", client), ("thread/resume", thread), ("thread/compact/start", thread)]
    with Door(program, "app-server", **PIPES) as process:
        heard = messages(process)
        for id, (method, params) in enumerate(asked):
            say(process, {"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            answer = await_message(heard, lambda message, id=id: message.get("id") == id)
            assert "error" not in answer, answer
            if method == "initialize":
                say(process, {"jsonrpc": "2.0", "method": "initialized"})
        await_message(heard, lambda message: message.get("method") == "turn/completed")


def opencode(program):
    [port] = free_ports(1)

    def ask(path, body=None, patience=PATIENCE):
        data = body and json.dumps(body).encode()
        url = f"http://127.0.0.1:{port}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=patience) as response:
            return json.load(response)

    with Door(program, "serve", "--port", port, **SILENT):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                # What it is asked before it is ready it never answers.
                sessions = ask("/session", patience=1.0)
                break
            except OSError:
                assert time.monotonic() < deadline, "opencode does not serve"
                time.sleep(0.1)
        newest = max(sessions, key=lambda session: session["time"]["updated"])
        model = {"providerID": "tests", "modelID": MODEL}
        assert ask(f"/session/{newest['id']}/summarize", model) is True


def claude(program):
    run = program.run("/compact", resumed=True)
    assert run.code == 0, run.tail()


DOORS = {"claude": claude, "codex": codex, "opencode": opencode, "pi": pi}


def compact(program):
    DOORS[program.name](program)

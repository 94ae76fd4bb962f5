"""A live proxy with a scripted provider behind it, and an agent that plays a session through both.

The provider is that of `tests/agents`: strict, and it annotates where it is asked to. Owns the processes and
the agent. Never opens a page.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROVIDER = ROOT / "tests/agents/fake_provider.py"
BINARY = Path(os.environ.get("PLIMSOLL_BIN", ROOT / "target/debug/plimsoll"))
START_DEADLINE = 30.0
STOP_DEADLINE = 40.0
TASK = "[task long] Read all parts."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Reads a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


def result(path):
    """What a file of the script says: some four hundred tokens, of which no two files share a line."""
    return "\n".join(f"{path}: line {line} keeps the figure {hash_of(path, line)}" for line in range(24))


def hash_of(path, line):
    return sum(ord(c) * (line + 7) for c in path) % 9973


class Live:
    """The two processes."""

    def __init__(self, directory, **env):
        self.directory = directory
        self.log = directory / "proxy.log"
        self.provider = subprocess.Popen(
            [sys.executable, PROVIDER, "--script", "long"], stdout=subprocess.PIPE, text=True
        )
        self.provider_url = self.provider.stdout.readline().strip()
        self.ports = free_ports(2)
        self.env = {
            **os.environ,
            "PLIMSOLL__DELIMITER__GUIDE_AT": "0",
            "PLIMSOLL__STORE__CONTENT": "all",
            **env,
        }
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.ports[1]}"

    def start(self):
        listen, admin = self.ports
        command = [BINARY, "serve", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
        command += ["--upstream", self.provider_url, "--data", self.directory / "data", "--budget", "4000"]
        with self.log.open("a") as out:
            self.proxy = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.directory, env=self.env)
        deadline = time.monotonic() + START_DEADLINE
        while time.monotonic() < deadline:
            assert self.proxy.poll() is None, self.log.read_text()
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=10).close()
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise AssertionError(f"the proxy was not ready:\n{self.log.read_text()}")

    def stop_proxy(self):
        self.proxy.terminate()
        return self.proxy.wait(STOP_DEADLINE)

    def stop(self):
        code = self.stop_proxy()
        self.provider.terminate()
        self.provider.wait(STOP_DEADLINE)
        assert code == 0, f"the proxy did not end cleanly: {code}\n{self.log.read_text()[-4000:]}"

    def api(self, path):
        with urllib.request.urlopen(f"{self.url}/api/{path}", timeout=30) as response:
            return json.load(response)

    def sent(self):
        """What the provider was sent, oldest first."""
        url = self.provider_url.removesuffix("/v1") + "/__requests"
        with urllib.request.urlopen(url, timeout=30) as response:
            return [entry["body"] for entry in json.load(response)]

    def ask(self, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[0]}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json", "authorization": "Bearer console"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.headers, json.load(response)


class Agent:
    """Reads what it is told to read, until the script is at its end."""

    def __init__(self, live):
        self.live = live
        self.messages = []
        self.session = None

    def tell(self, text):
        self.messages.append({"role": "user", "content": text})
        return self

    def turn(self):
        """One turn; whether the model wants another."""
        body = {"model": "gpt-5", "messages": self.messages, "tools": TOOLS}
        headers, answer = self.live.ask(body)
        self.session = headers["x-plimsoll-session"]
        message = answer["choices"][0]["message"]
        self.messages.append({name: value for name, value in message.items() if value is not None})
        for call in message.get("tool_calls") or []:
            path = json.loads(call["function"]["arguments"])["path"]
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result(path)})
        return bool(message.get("tool_calls"))

    def work(self):
        while self.turn():
            pass
        return self


def free_ports(count):
    """Held until all are known, or one might be given twice."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports

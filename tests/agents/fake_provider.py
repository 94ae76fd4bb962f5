"""A strict provider of three dialects that plays a script.

    python fake_provider.py --script sdk

prints its base URL on the first line of stdout and serves until it is killed. It refuses what a
real one refuses, answers from `scripts.py`, streams when asked, and tells what it was sent under
`/__requests` (beside the base URL). What it says depends on nothing but the request in hand; only
the faults that it was told to make, each of them once, are remembered.
"""

import argparse
import dataclasses
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import bound
import chat
import messages
import responses
import rules
from scripts import SCRIPTS, answer
from tools import Tools

DIALECTS = {dialect.PATH: dialect for dialect in (chat, responses, messages)}
# Seconds between the last frame and a cut. An agent that is still storing what it heard when the
# stream breaks (opencode) keeps a message without content and sends that, proxy or not.
HEARD = 0.5
# What a fault answers, and what its error is called. `cut` breaks a stream off behind its calls.
FAULTS = {
    "429": (429, "Rate limit reached.", "rate_limit_exceeded"),
    "500": (500, "The server had an error.", "server_error"),
    "529": (529, "Overloaded.", "overloaded"),
    "cut": None,
}


def fault(text):
    """`429@3` strikes the first answer of step 3, `429@3.1` that of its second hop."""
    kind, place = text.split("@")
    if kind not in FAULTS:
        raise ValueError(f"unknown fault {kind}")
    step, _, hop = place.partition(".")
    return kind, int(step), int(hop) if hop else None


class Provider(ThreadingHTTPServer):
    """The server, its script, and what it has been sent."""

    daemon_threads = True

    def __init__(self, script, tools=None, faults=(), window=None, binds=False):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.tools = tools
        self.faults = list(faults)
        # The steps and hops that were cut.
        self.broken = set()
        self.window = window
        self.binds = binds
        self.lock = threading.Lock()
        self.requests = []

    def strike(self, said):
        """The fault that is due in this place, if any; each is due once."""
        with self.lock:
            for due in self.faults:
                kind, step, hop = due
                if step == said.step and hop in (None, said.hop):
                    self.faults.remove(due)
                    if kind == "cut":
                        self.broken.add((said.step, said.hop))
                    return kind
        return None

    def base_url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def record(self, entry):
        with self.lock:
            self.requests.append(entry)
            return len(self.requests)

    def recorded(self):
        with self.lock:
            return list(self.requests)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    # A frame is on the wire when it is written, as a provider's is.
    wbufsize = 0

    def log_message(self, *args):
        """Requests are recorded, not printed: stdout carries the base URL only."""

    def do_HEAD(self):
        """Claude Code asks whether anybody is there."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.error(426, "WebSockets are not served here.", code="upgrade_required")
        elif self.path == "/__requests":
            self.reply(200, self.server.recorded())
        elif self.path.split("?")[0] == "/v1/models":
            models = [{"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}]
            self.reply(200, {"object": "list", "data": models})
        else:
            self.error(404, f"Unknown path {self.path}", code="not_found")

    def do_POST(self):
        raw = self.read_body()
        path = self.path.split("?")[0]
        dialect = DIALECTS.get(path.removesuffix("/count_tokens"))
        if dialect is None:
            self.error(404, f"Unknown path {self.path}", code="not_found")
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self.error(400, "We could not parse the JSON body of your request.")
            return
        if path.endswith("/count_tokens"):
            self.reply(200, {"input_tokens": size(body)})
            return
        problem = dialect.refusal(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        key = headers.pop("authorization", "") or headers.pop("x-api-key", "")
        entry = {"path": self.path, "headers": headers, "body": body, "refusal": problem}
        judged = None
        if self.server.binds and dialect is messages and not problem:
            judged = bound.judge(body, headers)
            problem = judged.refusal
            entry |= {"refusal": problem, "valid": judged.valid, "invalid": judged.invalid}
        number = self.server.record(entry)
        if key.removeprefix("Bearer ") in ("wrong", ""):
            self.error(401, "Incorrect API key provided.", code="invalid_api_key")
        elif problem:
            self.error(400, problem)
        else:
            self.play(dialect, number, body, entry, judged)

    def play(self, dialect, number, body, entry, judged):
        prompt, window = size(body), self.server.window
        entry["prompt"] = prompt
        if window and prompt > window:
            entry["fault"] = "window"
            self.reply(400, dialect.too_long(prompt, window))
            return
        try:
            server = self.server
            said = answer(server.script, dialect.asked(body), server.tools, server.broken)
            if judged:
                said = dataclasses.replace(said, bond=judged.bond, told=judged.told)
        except (LookupError, ValueError) as error:
            entry["refusal"] = f"off the script: {error}"
            self.error(400, entry["refusal"])
            return
        entry["said"] = [said.step, said.hop]
        entry["fault"] = kind = self.server.strike(said)
        if kind and FAULTS[kind]:
            status, message, code = FAULTS[kind]
            self.reply(status, dialect.error(status, message, code), retry_after=1)
        elif body.get("stream"):
            frames = dialect.frames(number, body, said, prompt)
            self.stream(number, frames, cut=dialect.CLOSES if kind else None)
        else:
            self.reply(200, dialect.whole(number, body, said, prompt))

    def stream(self, number, frames, cut):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("x-request-id", f"req-{number}")
        self.end_headers()
        for frame in frames:
            if cut and cut in frame:
                time.sleep(HEARD)
                self.close_connection = True
                return
            payload = frame.encode()
            # Two writes a frame, cut in the middle: whoever reads must not count on whole frames.
            half = len(payload) // 2
            for part in (payload[:half], payload[half:]):
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def read_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply(self, status, value, retry_after=None):
        payload = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.send_header("x-request-id", "req-unstreamed")
        self.end_headers()
        self.wfile.write(payload)

    def error(self, status, message, code=None):
        dialect = DIALECTS.get(self.path.split("?")[0], chat)
        self.reply(status, dialect.error(status, message, code))


def size(body):
    """Words and marks: near enough to a tokeniser's count."""
    return len(re.findall(r"\w+|[^\w\s]", json.dumps(body)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", choices=sorted(SCRIPTS), required=True)
    parser.add_argument("--agent", help="whose tools the script is played through")
    parser.add_argument("--root", default=".", help="the directory that the agent works in")
    parser.add_argument("--fault", action="append", type=fault, default=[], help=fault.__doc__)
    parser.add_argument("--window", type=int, help="the longest prompt that is not refused")
    parser.add_argument("--bound", action="store_true", help=bound.__doc__.split("\n")[0])
    given = parser.parse_args()
    tools = Tools(given.agent, given.root) if given.agent else None
    if tools:
        # Agents describe their own tools at length, and the providers that they are used with
        # take it.
        rules.DESCRIPTION_LIMIT = sys.maxsize
    provider = Provider(SCRIPTS[given.script], tools, given.fault, given.window, given.bound)
    print(provider.base_url(), flush=True)
    provider.serve_forever()


if __name__ == "__main__":
    main()

"""A strict provider of three dialects that plays a script.

    python fake_provider.py --script sdk

prints its base URL on the first line of stdout and serves until it is killed. It refuses what a
real one refuses, answers from `scripts.py`, streams when asked, and tells what it was sent under
`/__requests` (beside the base URL). It never looks at anything but the request in hand.
"""

import argparse
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import chat
import messages
import responses
from scripts import SCRIPTS, answer

DIALECTS = {dialect.PATH: dialect for dialect in (chat, responses, messages)}


class Provider(ThreadingHTTPServer):
    """The server, its script, and what it has been sent."""

    daemon_threads = True

    def __init__(self, script):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.lock = threading.Lock()
        self.requests = []

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

    def do_GET(self):
        if self.path == "/__requests":
            self.reply(200, self.server.recorded())
        elif self.path == "/v1/models":
            models = [{"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}]
            self.reply(200, {"object": "list", "data": models})
        else:
            self.error(404, f"Unknown path {self.path}", code="not_found")

    def do_POST(self):
        raw = self.read_body()
        dialect = DIALECTS.get(self.path.split("?")[0])
        if dialect is None:
            self.error(404, f"Unknown path {self.path}", code="not_found")
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self.error(400, "We could not parse the JSON body of your request.")
            return
        problem = dialect.refusal(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        key = headers.pop("authorization", "") or headers.pop("x-api-key", "")
        number = self.server.record(
            {"path": self.path, "headers": headers, "body": body, "refusal": problem}
        )
        if key.removeprefix("Bearer ") in ("wrong", ""):
            self.error(401, "Incorrect API key provided.", code="invalid_api_key")
        elif problem:
            self.error(400, problem)
        else:
            self.play(dialect, number, body)

    def play(self, dialect, number, body):
        try:
            said = answer(self.server.script, dialect.asked(body))
        except (LookupError, ValueError) as error:
            self.error(400, f"off the script: {error}")
            return
        # Words and marks: near enough to a tokeniser's count.
        prompt = len(re.findall(r"\w+|[^\w\s]", json.dumps(body)))
        if body.get("stream"):
            self.stream(number, dialect.frames(number, body, said, prompt))
        else:
            self.reply(200, dialect.whole(number, body, said, prompt))

    def stream(self, number, frames):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("x-request-id", f"req-{number}")
        self.end_headers()
        for frame in frames:
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

    def reply(self, status, value):
        payload = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.send_header("x-request-id", "req-unstreamed")
        self.end_headers()
        self.wfile.write(payload)

    def error(self, status, message, code=None):
        dialect = DIALECTS.get(self.path.split("?")[0], chat)
        self.reply(status, dialect.error(status, message, code))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", choices=sorted(SCRIPTS), required=True)
    provider = Provider(SCRIPTS[parser.parse_args().script])
    print(provider.base_url(), flush=True)
    provider.serve_forever()


if __name__ == "__main__":
    main()

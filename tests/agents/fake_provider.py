"""A strict Chat Completions provider that plays a script.

    python fake_provider.py --script sdk

prints its base URL on the first line of stdout and serves until it is killed. It refuses what
`rules.py` refuses, answers from `scripts.py`, streams when asked, and tells what it was sent under
`/__requests` (beside the base URL). It never looks at anything but the request in hand.
"""

import argparse
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rules import refusal
from scripts import SCRIPTS, answer

CHAT = "/v1/chat/completions"
# Arguments are streamed in pieces of this many characters, so that no call fits one frame.
PIECE = 7


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
        if self.path != CHAT:
            self.error(404, f"Unknown path {self.path}", code="not_found")
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self.error(400, "We could not parse the JSON body of your request.")
            return
        problem = refusal(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        key = headers.pop("authorization", "")
        number = self.server.record(
            {"path": self.path, "headers": headers, "body": body, "refusal": problem}
        )
        if key == "Bearer wrong" or not key:
            self.error(401, "Incorrect API key provided.", code="invalid_api_key")
        elif problem:
            self.error(400, problem)
        else:
            self.play(number, body)

    def play(self, number, body):
        try:
            text, calls = answer(self.server.script, body)
        except (LookupError, ValueError) as error:
            self.error(400, f"off the script: {error}")
            return
        meta = {
            "id": f"chatcmpl-{number}",
            "created": 1_700_000_000 + number,
            "model": f"{body['model']}-2026",
        }
        finish = "tool_calls" if calls else "stop"
        # Words and marks: near enough to a tokeniser's count.
        prompt = len(re.findall(r"\w+|[^\w\s]", json.dumps(body)))
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": 10,
            "total_tokens": prompt + 10,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        if body.get("stream"):
            wants_usage = (body.get("stream_options") or {}).get("include_usage")
            self.stream(meta, text, calls, finish, usage if wants_usage else None)
        else:
            message = {"role": "assistant", "content": text or None, "refusal": None}
            if calls:
                message["tool_calls"] = [
                    {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                    for id, name, arguments in calls
                ]
            choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
            self.reply(
                200, {**meta, "object": "chat.completion", "choices": [choice], "usage": usage}
            )

    def stream(self, meta, text, calls, finish, usage):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("x-request-id", f"req-{meta['id']}")
        self.end_headers()
        chunk = {**meta, "object": "chat.completion.chunk"}

        def frame(choices, **more):
            self.frame(json.dumps({**chunk, "choices": choices, **more}, ensure_ascii=False))

        def delta(delta, reason=None):
            frame([{"index": 0, "delta": delta, "finish_reason": reason}])

        delta({"role": "assistant", "content": None if calls and not text else ""})
        for word in re.findall(r"\S+\s*", text):
            delta({"content": word})
        for place, (id, name, arguments) in enumerate(calls):
            head = {"index": place, "id": id, "type": "function"}
            delta({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]})
            for at in range(0, len(arguments), PIECE):
                piece = {"arguments": arguments[at : at + PIECE]}
                delta({"tool_calls": [{"index": place, "function": piece}]})
        delta({}, finish)
        if usage:
            frame([], usage=usage)
        self.frame("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def frame(self, data):
        payload = f"data: {data}\n\n".encode()
        # Two writes a frame, cut in the middle: whoever reads must not count on whole frames.
        half = len(payload) // 2
        for part in (payload[:half], payload[half:]):
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")

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
        kind = "invalid_request_error"
        error = {"message": message, "type": kind, "param": None, "code": code}
        self.reply(status, {"error": error})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", choices=sorted(SCRIPTS), required=True)
    provider = Provider(SCRIPTS[parser.parse_args().script])
    print(provider.base_url(), flush=True)
    provider.serve_forever()


if __name__ == "__main__":
    main()

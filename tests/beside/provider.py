"""A scripted provider of Chat Completions: it answers each request with what was recorded, and keeps what it was sent.

One session at a time: `Provider.expect` says what the next answer is, `Provider.hops` lists the requests that came for
it. Where a marker is given, the answer to a turn's first request has its marks beside the recorded calls, if the
request offers `delimiter` and a system text tells the model to use it. Owns the server. Never judges a request.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cache import Unit
from marks import TOOL
from tokens import calls_of, identity, marked, text_of


class Hop:
    """A request as it came: its body, its units, how long its reading took here, and what was answered."""

    def __init__(self, body, units, seconds, answer):
        self.messages = body.get("messages") or []
        self.tools = body.get("tools") or []
        self.units = units
        self.tokens = sum(unit.tokens for unit in units)
        self.seconds = seconds
        self.answer = answer


def units_of(sizer, messages, tools):
    """A request as a cache sees it."""
    units = [Unit(json.dumps(tools, sort_keys=True), sizer.tools(tools), prologue=True)] if tools else []
    prologue = True
    for one in messages:
        prologue = prologue and one.get("role") in ("system", "developer")
        units.append(Unit(identity(one), sizer.message(one), max(1, len(calls_of(one))), prologue, marked(one)))
    return units


def asked_to_mark(messages, tools):
    """Whether a request offers `delimiter` and tells the model to use it."""
    offered = any(tool.get("function", {}).get("name") == TOOL for tool in tools or [])
    return offered and any(TOOL in text_of(one.get("content")) for one in messages
                           if one.get("role") in ("system", "developer"))


class Provider:
    """The server, and the turn that it is in."""

    def __init__(self, sizer):
        self.sizer = sizer
        self.hops = []
        self.reply = {}
        self.mark = None
        handler = type("Handler", (Handler,), {"provider": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def expect(self, reply, mark=None):
        """What the next turn is answered with. `mark` makes the marks beside it, when the model is asked to."""
        self.hops, self.reply, self.mark = [], reply, mark

    def taken(self, body, began):
        """Keeps a request, and answers it."""
        messages, tools = body.get("messages") or [], body.get("tools") or []
        answer = self.reply
        if self.mark and asked_to_mark(messages, tools):
            marks, self.mark = self.mark(), None
            if marks:
                answer = {**answer, "tool_calls": marks + (answer.get("tool_calls") or [])}
        hop = Hop(body, units_of(self.sizer, messages, tools), 0, answer)
        reply = json.dumps(completion(body.get("model"), answer, hop.tokens, self.sizer.said(answer))).encode()
        hop.seconds = time.perf_counter() - began
        self.hops.append(hop)
        return reply


def completion(model, answer, prompt, output):
    """An answer as the API has it."""
    reason = "tool_calls" if answer.get("tool_calls") else "stop"
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
            "choices": [{"index": 0, "message": answer, "finish_reason": reason}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}}


class Handler(BaseHTTPRequestHandler):
    """Each answer goes out in one piece, so that no delay of the network's is measured."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    provider = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send(b'{"object":"list","data":[]}')

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        began = time.perf_counter()
        if not self.path.split("?")[0].endswith("chat/completions"):
            self.send(b'{"error":{"message":"not found"}}', "404 Not Found")
            return
        self.send(self.provider.taken(json.loads(raw), began))

    def send(self, body, status="200 OK"):
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

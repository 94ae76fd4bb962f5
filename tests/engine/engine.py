"""What a real prefix cache makes of the proxy's requests.

    python engine.py --server llama-server --model MODEL.gguf [--session SESSION.jsonl]

Plays one scripted session of tool calls through the proxy to llama.cpp's server, once for each of
`floor = "auto"`, `floor = "budget"` and mode `off`, round by round, and prints what the engine
itself reports: tokens of prompts, how many of them it had cached, and the time to its first token.
The engine reads every prompt in full; what it would answer is thrown away, and the script answers
in its place, so that each way is asked the same. Never judges a time.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# The least that the proxy takes.
TAU = 4_000
# The window of the engine's model, which the untouched session must fit.
WINDOW = 8_192
# Characters of a recorded text that are kept: the window is small.
TEXT = 900
# Calls of the session, and how many of them one episode has.
CALLS = 26
EPISODE = 4
WAYS = {
    "off": ({}, {"x-plimsoll-mode": "off"}),
    "auto": ({"PLIMSOLL__BUDGET__FLOOR": "auto"}, {}),
    "budget": ({"PLIMSOLL__BUDGET__FLOOR": "budget"}, {}),
}


def session(path):
    """The user's task, and pairs of a call and its result."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    messages = [line for line in lines if "role" in line]
    results = {m["tool_call_id"]: m for m in messages if m["role"] == "tool"}
    calls = [call for m in messages for call in m.get("tool_calls") or []]
    pairs = []
    for call in calls:
        result = results.get(call["id"])
        text = result and result["content"]
        if isinstance(text, str) and len(call["function"]["arguments"]) < TEXT:
            pairs.append((call["function"], text[:TEXT]))
    task = next(m["content"] for m in messages if m["role"] == "user")
    return str(task)[:TEXT], pairs[:CALLS]


def tools(pairs):
    """A schema for each tool of the session."""
    names = sorted({function["name"] for function, _ in pairs})
    schema = {"type": "object", "additionalProperties": True}
    return [
        {"type": "function", "function": {"name": n, "description": n, "parameters": schema}}
        for n in names
    ]


def script(pairs, hidden):
    """The answers in order: the recorded calls, with episodes marked where a model may."""
    answers = []

    def call(name, arguments):
        number = len(answers)
        function = {"name": name, "arguments": arguments}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        answers.append({"role": "assistant", "content": None, "tool_calls": calls})

    def mark(**arguments):
        if hidden:
            call("delimiter", json.dumps(arguments))

    for number, (function, _) in enumerate(pairs):
        name = f"part-{number // EPISODE}"
        if number % EPISODE == 0:
            mark(action="start", type="expl", name=name)
        call(function["name"], function["arguments"])
        if number % EPISODE == EPISODE - 1:
            mark(action="end", name=name, description=f"What {name} needed was read.")
    answers.append({"role": "assistant", "content": "Done."})
    return answers


class Shim(ThreadingHTTPServer):
    """Has the engine read each request, and answers with the script's next line."""

    daemon_threads = True

    def __init__(self, engine, answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.engine = engine
        self.answers = iter(answers)
        self.read = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.read.append(prefill(self.server.engine, body))
        choice = {"index": 0, "message": next(self.server.answers)}
        choice["finish_reason"] = "tool_calls" if choice["message"].get("tool_calls") else "stop"
        usage = self.server.read[-1]["usage"]
        answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "m"}
        answer = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def prefill(engine, body):
    """Has the engine read a request up to its first token."""
    asked = {key: body[key] for key in ("messages", "tools") if key in body}
    asked |= {"max_tokens": 1, "stream": True, "stream_options": {"include_usage": True}}
    first, usage, begun = None, None, time.perf_counter()
    with post(f"{engine}/v1/chat/completions", asked) as events:
        for line in events:
            if not line.startswith(b"data: {"):
                continue
            if first is None:
                first = time.perf_counter() - begun
            usage = json.loads(line[6:]).get("usage") or usage
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    if cached is None:
        raise SystemExit("the engine does not report cached tokens")
    return {"usage": usage, "prompt": usage["prompt_tokens"], "cached": cached, "first": first}


def post(url, body, headers=None):
    headers = {"content-type": "application/json", "authorization": "Bearer sk", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        return urllib.request.urlopen(request, timeout=600)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.code} {error.read().decode()[:500]}") from error


def free_ports(count):
    """Held until all are known, or one might be given twice."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def await_ready(process, url):
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
        try:
            return urllib.request.urlopen(url, timeout=5).read()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise SystemExit(f"{process.args[0]} was not ready in time")


def play(binary, engine, task, pairs, way):
    """One session through a proxy of its own, and what the engine read of it."""
    environment, headers = WAYS[way]
    shim = Shim(engine, script(pairs, hidden=way != "off"))
    threading.Thread(target=shim.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as scratch:
        listen, admin = free_ports(2)
        command = [binary, "serve", "--listen", f"127.0.0.1:{listen}"]
        command += ["--admin", f"127.0.0.1:{admin}", "--upstream", shim.url]
        command += ["--data", f"{scratch}/data", "--budget", str(TAU), "--log", "warn"]
        proxy = subprocess.Popen(command, cwd=scratch, env=os.environ | environment)
        try:
            await_ready(proxy, f"http://127.0.0.1:{admin}/readyz")
            converse(f"http://127.0.0.1:{listen}/v1", headers, task, pairs)
        finally:
            proxy.terminate()
            proxy.wait()
            shim.shutdown()
    return shim.read


def converse(url, headers, task, pairs):
    """The client: sends the whole history with every turn."""
    system = "You are a coding agent. Use the tools."
    messages = [{"role": "system", "content": system}, {"role": "user", "content": task}]
    for _, result in [*pairs, (None, None)]:
        body = {"model": "gpt-4o", "messages": messages, "tools": tools(pairs)}
        with post(f"{url}/chat/completions", body, headers) as response:
            answer = json.loads(response.read())["choices"][0]["message"]
        messages.append(answer)
        for call in answer.get("tool_calls") or []:
            if call["function"]["name"] == "delimiter":
                raise SystemExit("a hidden call reached the client")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def report(read, rounds):
    """A table of all ways: sums of one round, times as medians over the rounds."""
    base = None
    print("| way | requests | prompt tokens | largest | cached by the engine | share | computed |"
          " first token, sum of a round | to `off` |")
    print("|---|---|---|---|---|---|---|---|---|")
    for way in WAYS:
        sums = [sum(one["first"] for one in run) for run in read[way]]
        time_ = statistics.median(sums)
        base = base or time_
        run = read[way][0]
        prompt, cached = (sum(one[key] for one in run) for key in ("prompt", "cached"))
        largest = max(one["prompt"] for one in run)
        print(f"| {way} | {len(run)} | {prompt} | {largest} | {cached} | {cached / prompt:.3f} |"
              f" {prompt - cached} | {time_:.2f} s | {time_ / base:.2f} |")
    print(f"\n{rounds} rounds; the ways take turns in each.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--server", required=True, help="llama.cpp's server")
    parser.add_argument("--model", required=True, help="its model, GGUF")
    parser.add_argument("--session", required=True, type=Path, help="a recorded session, JSON lines")
    parser.add_argument("--binary", default=str(ROOT / "target/release/plimsoll"))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    task, pairs = session(asked.session)
    [port] = free_ports(1)
    command = [asked.server, "-m", asked.model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["-c", str(WINDOW), "-np", "1", "--jinja", "--no-webui"]
    engine = f"http://127.0.0.1:{port}"
    with open(os.devnull, "w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        await_ready(server, f"{engine}/health")
        read = {way: [] for way in WAYS}
        for _ in range(asked.rounds):
            for way in WAYS:
                # What another way left in the cache must not help this one.
                other = {"messages": [{"role": "user", "content": f"{way} begins."}]}
                prefill(engine, other)
                read[way].append(play(asked.binary, engine, task, pairs, way))
        report(read, asked.rounds)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()

"""How long the console takes with much in a store on disk: `python scale.py [SESSIONS [TURNS [DIRECTORY]]]`.

Plays so many sessions of two turns, and one of so many turns, through a real proxy on sled, starts the proxy
anew, and prints how long its answers take, first cold and then again, and when a browser has painted. Give the
release build as PLIMSOLL_BIN. A directory keeps what was played, and what is there is not played again. Asserts
only that everything is shown; a test never asserts a time.
"""

import contextlib
import http.client
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from conftest import CHROMIUM, WIDE
from live import TOOLS, Live
from playwright.sync_api import sync_playwright

LONG = "a long session"
CLIENTS = 8


class Provider(BaseHTTPRequestHandler):
    """Calls a tool in each answer."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["content-length"]))
        self.server.answers += 1
        status, answer = self.answer(asked, self.server.answers)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, asked, number):
        """The status and the answer to a request."""
        arguments = json.dumps({"path": f"part-{number}.txt"})
        call = {"id": f"call-{number}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        message = {"role": "assistant", "content": f"Part {number}.", "tool_calls": [call]}
        return 200, {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": self.usage(asked),
        }

    def usage(self, asked):
        return {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}


class Played(Live):
    """A proxy before such a provider. Its store outlives it."""

    def __init__(self, directory, provider=Provider, **env):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), provider)
        self.server.answers = 0
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        super().__init__(directory, PLIMSOLL__DELIMITER__GUIDE_AT="1", **env)
        self.provider.terminate()

    def start(self):
        self.provider_url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        super().start()


def play(live, name, turns):
    """One session; the list of messages grows as text, because a long one is not written anew each turn."""
    wire = http.client.HTTPConnection("127.0.0.1", live.ports[0])
    text = json.dumps({"role": "user", "content": name})
    head = json.dumps({"model": "gpt-5", "tools": TOOLS})[:-1] + ',"messages":['
    headers = {"content-type": "application/json", "authorization": "Bearer console", "x-plimsoll-session": name.replace(" ", "-")}
    for _ in range(turns):
        wire.request("POST", "/v1/chat/completions", (head + text + "]}").encode(), headers)
        response = wire.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        message = answer["choices"][0]["message"]
        call = message["tool_calls"][0]
        lines = "\n".join(f"{call['id']} line {line} keeps {line * 7919}" for line in range(12))
        result = {"role": "tool", "tool_call_id": call["id"], "content": lines}
        text += "," + json.dumps(message) + "," + json.dumps(result)
    wire.close()
    return response.headers["x-plimsoll-session"]


def timed(live, path):
    """The times of an answer, cold and again, and its size."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        wire = http.client.HTTPConnection("127.0.0.1", live.ports[1])
        wire.request("GET", f"/api/{path}")
        response = wire.getresponse()
        body = response.read()
        times.append(1000 * (time.perf_counter() - begun))
        assert response.status == 200, body
        wire.close()
    print(f"  {path:50} {times[0]:8.0f} ms, then {min(times[1:]):6.0f} ms, {len(body) / 1e6:6.2f} MB", flush=True)


PAINT = "performance.getEntriesByType('paint').find((e) => e.name === 'first-contentful-paint').startTime"


def painted(browser, url, shown):
    """When a new page first painted anything, and when it showed what it is about."""
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    begun = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_selector(shown, timeout=120_000)
    whole = 1000 * (time.perf_counter() - begun)
    print(f"  {url.split('/', 3)[3]:50} {page.evaluate(PAINT):8.0f} ms, and its content after {whole:6.0f} ms", flush=True)
    context.close()


def played(live, sessions, turns):
    """Plays all sessions; the name of the long one."""
    begun = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        names = (f"session {number}" for number in range(sessions))
        list(pool.map(lambda name: play(live, name, 2), names))
    print(f"{sessions} sessions of two turns were played in {time.monotonic() - begun:.0f} s", flush=True)
    begun = time.monotonic()
    long = play(live, LONG, turns)
    print(f"one of {turns} turns in {time.monotonic() - begun:.0f} s", flush=True)
    return long


def main(sessions=10_000, turns=5_000, kept=None):
    sessions, turns = int(sessions), int(turns)
    with contextlib.nullcontext(kept) if kept else tempfile.TemporaryDirectory() as directory:
        name = Path(directory) / "long-session"
        is_played = name.exists()
        Path(directory).mkdir(exist_ok=True)
        live = Played(Path(directory))
        if not is_played:
            name.write_text(played(live, sessions, turns))
        long = name.read_text()
        views = ["timeline", "evictions", "turns", "view"]
        paths = ["overview", "spend?bounds=0", "sessions?limit=100", "sessions?limit=100&spark=1", "sessions?sort=-saved&limit=100"]
        paths += ["sessions?q=session+77&limit=100&spark=1"]
        first = live.api(f"sessions/{long}/items?limit=1")["items"][0]["no"]
        paths += [f"sessions/{long}{rest}" for rest in ["", "/turns", "/items?limit=5000", f"/items/{first}?turn={turns}"]]
        for path in paths:
            # Each is asked first of a process that knows nothing.
            live.stop_proxy()
            live.start()
            timed(live, path)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            live.stop_proxy()
            live.start()
            painted(browser, f"{live.url}/", "table.ovt tbody tr")
            for view in views:
                live.stop_proxy()
                live.start()
                painted(browser, f"{live.url}/#/s/{long}/{view}", "main nav.tabs")
            browser.close()
        live.stop()
        live.server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The first five questions of whoever opens the console, over a thousand sessions of a live proxy: each is answered
by three clicks at most, and by keys alone. The provider caches what it was sent, and refuses one session."""

import http.client
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import scale
from conftest import keep
from live import BINARY
from playwright.sync_api import expect

# One of the test's workers plays them for all.
pytestmark = pytest.mark.xdist_group("thousand")

SESSIONS = 1000
CLICKS = 3
# How often Tab is pressed before whoever looks for something gives up.
PATIENT = 120
BROKEN, REFUSED, NEAR = "Look after the cache", "Ask for what is refused", "Work until the budget is near"


class Provider(scale.Provider):
    """Reads from its cache what it was sent before in the same session."""

    held = {}
    lock = threading.Lock()

    def answer(self, asked, number):
        if REFUSED in asked.decode() and b'"tool"' in asked:
            return 400, {"error": {"message": "The heron is not allowed here.", "type": "invalid_request_error", "code": "no_heron"}}
        return super().answer(asked, number)

    def usage(self, asked):
        text = asked.decode()
        name = re.search(r"session \d+|" + BROKEN, text)
        with self.lock:
            before = self.held.get(name and name[0], "")
            self.held[name and name[0]] = text
        same = next((i for i, (a, b) in enumerate(zip(before, text, strict=False)) if a != b), min(len(before), len(text)))
        prompt, cached = len(text) // 4, same // 4 // 128 * 128
        details = {"cached_tokens": cached if cached >= 1024 else 0}
        return {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20, "prompt_tokens_details": details}


def say(live, name, messages):
    """One request; the answer's status and message."""
    wire = http.client.HTTPConnection("127.0.0.1", live.ports[0])
    headers = {"content-type": "application/json", "authorization": "Bearer console", "x-plimsoll-session": name.replace(" ", "-")}
    wire.request("POST", "/v1/chat/completions", json.dumps({"model": "gpt-5", "tools": scale.TOOLS, "messages": messages}), headers)
    response = wire.getresponse()
    answer = json.loads(response.read())
    wire.close()
    return response.status, answer


def work(live, name, turns, system):
    """A session whose system text may be another at each turn; the statuses that it got."""
    history = [{"role": "user", "content": name}]
    statuses = []
    for turn in range(turns):
        status, answer = say(live, name, [{"role": "system", "content": system(turn)}, *history])
        statuses.append(status)
        if status != 200:
            break
        message = answer["choices"][0]["message"]
        call = message["tool_calls"][0]
        history += [message, {"role": "tool", "tool_call_id": call["id"], "content": f"{call['id']} has nothing of note"}]
    return statuses


RULES = " ".join(f"Rule {number} is about heron {number * 7919}." for number in range(240))


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    if not BINARY.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{BINARY} is missing")
    # A slow machine reads no session in vain.
    live = scale.Played(tmp_path_factory.mktemp("thousand"), Provider, PLIMSOLL__STORE__READ_WAIT="30s")

    try:
        scale.play(live, NEAR, 10)
        with ThreadPoolExecutor(scale.CLIENTS) as pool:
            list(pool.map(lambda number: scale.play(live, f"session {number}", 2), range(SESSIONS)))
        assert work(live, BROKEN, 4, lambda turn: f"Today is day {turn // 2}. {RULES}") == [200] * 4
        assert work(live, REFUSED, 2, lambda _: "Be brief.") == [200, 400]
        yield live
    finally:
        live.stop()
        live.server.shutdown()


class Hand:
    """Answers a question with a mouse, and counts the clicks."""

    def __init__(self, page):
        self.page = page
        self.clicks = 0

    def open(self, what):
        what.click()
        self.clicks += 1
        assert self.clicks <= CLICKS

    def row(self, title):
        self.open(self.page.get_by_role("link", name=title, exact=True))


class Keys(Hand):
    """Answers it by keys alone."""

    def open(self, what):
        expect(what).to_be_visible()
        for _ in range(PATIENT):
            if what.evaluate("(element) => element === document.activeElement"):
                break
            self.page.keyboard.press("Tab")
        expect(what).to_be_focused()
        self.page.keyboard.press("Enter")

    def row(self, title):
        self.page.keyboard.press("/")
        self.page.keyboard.type(title)
        expect(self.page.locator("table.ovt tbody tr.lk")).to_have_count(1)
        self.page.keyboard.press("ArrowDown")
        expect(self.page.get_by_role("link", name=title, exact=True)).to_be_focused()
        self.page.keyboard.press("Enter")


@pytest.fixture(params=[Hand, Keys], ids=["mouse", "keys"])
def hand(request, stage, thousand):
    page = stage.open(thousand.url)
    expect(page.get_by_text(f"{SESSIONS + 3:,} sessions", exact=True)).to_be_visible()
    return request.param(page)


def test_what_did_it_cost_and_save_today(hand, thousand):
    spend = hand.page.get_by_role("region", name="Cost and savings")
    expect(spend.locator(".headline")).to_contain_text(re.compile(r"\$[\d.]+ paid.*saved.*sent whole"))
    expect(spend.locator(".headline")).to_contain_text(f"{2 * SESSIONS + 15:,} turns of {SESSIONS + 3:,} sessions")
    hand.open(spend.get_by_text("By model, program, tenant and role"))
    expect(spend.get_by_role("region", name="Sums").locator("tbody tr")).to_contain_text(["gpt-5"])
    hand.open(spend.get_by_role("button", name="Role"))
    expect(spend.get_by_role("region", name="Sums")).to_contain_text("hidden hops")
    keep(hand.page, "question-today")


def test_why_did_the_cache_break(hand, thousand):
    hand.row(BROKEN)
    hand.open(hand.page.get_by_role("link", name="Turns"))
    hand.open(hand.page.get_by_role("link", name=re.compile("cache missed .*the agent’s system text changed")))
    changed = hand.page.get_by_role("region", name="What changed")
    expect(changed.locator("mark.was")).to_contain_text("0")
    expect(changed.locator("mark.is")).to_contain_text("1")
    expect(changed.locator("pre").first).to_contain_text("Today is day")
    keep(hand.page, "question-cache")


def test_which_tool_fills_my_context(hand, thousand):
    hand.row(BROKEN)
    tools = hand.page.get_by_role("region", name="Tokens by tool")
    expect(tools.locator("tbody tr").first).to_contain_text("system text")
    expect(tools.locator("tbody")).to_contain_text("read_file")
    keep(hand.page, "question-tool")


def test_which_requests_failed_and_why(hand, thousand):
    hand.open(hand.page.get_by_role("link", name="1 failed"))
    fails = hand.page.locator("table.fails")
    expect(fails).to_contain_text("400")
    expect(fails).to_contain_text("no_heron: The heron is not allowed here.")
    keep(hand.page, "question-failed")


def test_which_session_reaches_the_line_next(hand, thousand):
    with hand.page.expect_response(re.compile("sort=next")):
        hand.open(hand.page.get_by_role("button", name="Next pass"))
    # The oldest of all comes before all that have hardly begun.
    rows = hand.page.locator("table.ovt tbody tr.lk")
    expect(rows.first).to_contain_text(NEAR, timeout=10_000)
    turns = [int(text.lstrip("~").split()[0]) for text in rows.locator("td:nth-child(3)").all_inner_texts()]
    assert turns == sorted(turns) and turns[0] < turns[-1]
    keep(hand.page, "question-next")

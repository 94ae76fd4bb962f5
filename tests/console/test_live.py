"""The console of a live proxy, in a browser: every view and every action, and that what is shown is what the
API says. The provider is scripted, so each run plays the same session."""

import json
import os
import subprocess
import time
import urllib.error

import contract
import pytest
from conftest import PATIENCE, PHONE, keep
from live import BINARY, TASK, Agent, Live
from playwright.sync_api import expect

VIEWS = ["timeline", "evictions", "turns", "view", "build", "whatif"]


@pytest.fixture
def starts(stage, tmp_path):
    """Starts a proxy under settings."""
    begun = []

    def start(**env):
        if not BINARY.exists():
            if os.environ.get("CI") == "true":
                pytest.fail(f"{BINARY} is missing: run `cargo build` first")
            pytest.skip(f"{BINARY} is missing")
        begun.append(Live(tmp_path, **env))
        return begun[-1]

    yield start
    stage.close()
    for live in begun:
        live.stop()


@pytest.fixture
def live(starts):
    return starts()


@pytest.fixture
def played(live):
    """The proxy, and the agent that has played the whole script."""
    return live, Agent(live).tell(TASK).work()


def url(live, agent, view, query=""):
    return f"{live.url}/#/s/{agent.session}/{view}{query}"


def session(live, agent):
    said = live.api(f"sessions/{agent.session}")
    assert contract.fault("Session", said) is None
    return said


def short(tokens):
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)


def test_a_session_appears_and_grows_while_the_page_is_open(stage, live):
    page = stage.open(live.url)
    expect(page.get_by_role("heading", name="No session yet")).to_be_visible()
    agent = Agent(live).tell(TASK)
    agent.turn()
    expect(page.get_by_role("link", name=TASK)).to_be_visible()
    page.get_by_role("link", name=TASK).click()
    expect(page.locator(".ro")).to_contain_text("turn 1")
    for turn in range(2, 6):
        agent.turn()
        ended = time.monotonic()
        expect(page.locator(".ro")).to_contain_text(f"turn {turn}")
        print(f"turn {turn} was shown {1000 * (time.monotonic() - ended):.0f} ms after its answer")
    agent.work()
    row = session(live, agent)["row"]
    expect(page.locator(".figs.sess")).to_contain_text(f"{row['passes']}")
    expect(page.locator(".ro")).to_contain_text(f"turn {row['turn']}")
    keep(page, "live-timeline", whole=True)


def test_figures_are_those_of_the_api(stage, played):
    live, agent = played
    said = session(live, agent)
    page = stage.open(url(live, agent, "timeline"))
    figures = page.locator(".figs.sess .fig")
    expect(figures.nth(4)).to_contain_text(f"Passes{said['row']['passes']}")
    expect(figures.nth(6)).to_contain_text(f"Hidden hops{said['row']['hops']}")
    judged = [p for p in said["passes"] if p["needed"] is not None]
    missed = sum(p["needed"] for p in judged)
    items = sum(p["items"] for p in said["passes"])
    expect(figures.nth(5)).to_contain_text(f"{missed}of {items}" if judged else "–")
    account = said["row"]["saved"]["usd"]
    dollars = abs(account["net"])
    sign = "−" if account["net"] < 0 else ""
    expect(figures.nth(1)).to_contain_text(f"{sign}${dollars:.{2 if dollars >= 0.0995 else 3 if dollars >= 0.001 else 4}f}")
    expect(page.get_by_role("region", name="Parts of the view").locator(".ph b")).to_have_text(f"{said['row']['out']:,}")


@pytest.mark.parametrize("size", [None, PHONE], ids=["wide", "phone"])
def test_every_view_opens(stage, played, size):
    live, agent = played
    page = stage.open(live.url, size)
    expect(page.get_by_text(TASK).first).to_be_visible()
    keep(page, f"live-overview-{'phone' if size else 'wide'}")
    for view in VIEWS:
        page.goto(url(live, agent, view))
        expect(page.locator(".tabs [aria-current]")).to_be_visible()
        page.wait_for_load_state("domcontentloaded")
        expect(page.locator(".skrow, .bar")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)
        keep(page, f"live-{view}-{'phone' if size else 'wide'}", whole=True)


def test_a_pass_says_what_went_and_the_original_is_whole(stage, played):
    live, agent = played
    last = session(live, agent)["passes"][-1]
    moves = live.api(f"sessions/{agent.session}/passes/{last['turn']}")["moves"]
    moved = next(m for m in moves if m["id"].startswith("read_file:"))
    page = stage.open(url(live, agent, "evictions", f"?pass={last['turn']}"))
    table = page.get_by_role("region", name="Items that moved")
    expect(table.locator("tr.lk")).to_have_count(len(moves))
    table.get_by_role("button", name=moved["id"], exact=True).click()
    expect(table.locator("tr.inner")).to_contain_text("line 23 keeps the figure")
    keep(page, "live-eviction")


def gone(live, agent):
    """A read of the script that is out of the newest view."""
    items = live.api(f"sessions/{agent.session}/items?limit=5000")["items"]
    return next(i for i in items if i["role"] == "call" and i["marks"] and i["marks"][-1][1] in ("masked", "removed"))


def test_an_item_that_is_gone_says_why_and_has_its_original(stage, played):
    live, agent = played
    item = gone(live, agent)
    page = stage.open(url(live, agent, "view", f"?item={item['no']}"))
    panel = page.get_by_role("complementary", name=f"Item {item['id']}")
    said = live.api(f"sessions/{agent.session}/items/{item['no']}")
    assert contract.fault("ItemDetail", said) is None
    expect(panel).to_contain_text(said["reason"])
    expect(panel).to_contain_text("line 23 keeps the figure")
    keep(page, "live-view")


def test_an_item_is_pinned_and_unpinned(stage, played):
    live, agent = played
    items = live.api(f"sessions/{agent.session}/items?limit=5000")["items"]
    item = [i for i in items if i["role"] == "call" and not i["marks"]][-1]
    page = stage.open(url(live, agent, "view", f"?item={item['no']}"))
    panel = page.get_by_role("complementary", name=f"Item {item['id']}")
    panel.get_by_role("button", name="Pin").click()
    expect(panel).to_contain_text(f"{item['id']} is pinned")
    agent.tell(f"{TASK} Once more.").turn()
    expect(page.get_by_role("button", name=f"Unpin {item['id']}")).to_be_visible()
    assert item["id"] in session(live, agent)["pins"]
    page.get_by_role("button", name=f"Unpin {item['id']}").click()
    expect(page.get_by_text(f"{item['id']} is no longer pinned")).to_be_visible()
    agent.turn()
    expect(page.get_by_role("button", name=f"Unpin {item['id']}")).to_have_count(0)
    assert session(live, agent)["pins"] == []


def test_an_eviction_at_once_is_a_pass_of_the_next_request(stage, played):
    live, agent = played
    before = session(live, agent)["row"]
    page = stage.open(url(live, agent, "timeline"))
    page.get_by_role("button", name="Evict …").click()
    page.get_by_role("button", name="Evict at the next request").click()
    expect(page.get_by_text("a pass down to the floor with the session's next request")).to_be_visible()
    agent.tell(f"{TASK} Once more.").turn()
    expect(page.locator(".ro")).to_contain_text(f"turn {before['turn'] + 1}")
    after = session(live, agent)
    assert after["row"]["passes"] == before["passes"] + 1
    assert after["passes"][-1]["trigger"] == "asked"


def test_one_item_is_evicted_at_the_next_request_and_nothing_else(stage, played):
    live, agent = played
    before = session(live, agent)["row"]
    items = live.api(f"sessions/{agent.session}/items?limit=5000")["items"]
    item = next(one for one in items if one["role"] == "call" and not one["marks"])
    page = stage.open(url(live, agent, "view", f"?item={item['no']}"))
    panel = page.get_by_role("complementary", name=f"Item {item['id']}")
    panel.get_by_role("button", name="Evict", exact=True).click()
    expect(panel).to_contain_text(f"{item['id']} leaves the view with the next pass")
    expect(page.get_by_text(f"the eviction of {item['id']}")).to_be_visible()
    panel.get_by_role("button", name=f"Evict {item['id']} at the next request").click()
    expect(panel).to_contain_text("leaves the view with the session's next request")
    agent.tell(f"{TASK} Once more.").turn()
    expect(page.get_by_text(f"Turn {before['turn'] + 1}", exact=True)).to_be_visible()
    after = session(live, agent)
    assert after["row"]["passes"] == before["passes"] + 1 and after["passes"][-1]["items"] == 1
    assert live.api(f"sessions/{agent.session}/items/{item['no']}")["mark"] in ("masked", "trimmed")
    assert after["waiting"]["evictions"] == []


def results(body):
    return {m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"}


def test_a_fork_is_a_request_that_a_provider_takes(stage, played):
    live, agent = played
    page = stage.open(url(live, agent, "build", "?before=10"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    made = json.loads(download.value.path().read_text())
    assert made["messages"][0]["role"] in ("user", "system") and len(made["messages"]) >= 17
    assert not any("part-0" in json.dumps(m.get("tool_calls", [])) for m in made["messages"]), "hidden calls stay behind"
    assert all(call["id"] in results(made) for m in made["messages"] for call in m.get("tool_calls", []))
    with pytest.raises(urllib.error.HTTPError) as refused:
        live.ask(made)
    # Its strict rules took the request; only its script has no answer to calls that it did not make.
    assert "off the script" in refused.value.read().decode()
    for name in ("Responses", "Messages", "handoff text"):
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator("pre.preview")).to_contain_text("line 3 keeps the figure" if name == "handoff text" else "Part 0.")
    for name, run in {
        "Claude Code": "claude --resume",
        "codex": "codex resume",
        "pi": "pi --session",
        "opencode": "opencode import",
    }.items():
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.locator("p.resume")).to_contain_text(run)
        expect(page.locator("pre.preview")).to_contain_text("Part 0.")
    keep(page, "live-build")


def test_a_session_is_got_as_a_file_while_the_server_runs(stage, played):
    live, agent = played
    page = stage.open(url(live, agent, "timeline"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    got = download.value.path().read_text()
    assert download.value.suggested_filename == f"{agent.session[:8]}.jsonl"
    page.get_by_role("button", name="Copy export command").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    program, *command = page.evaluate("navigator.clipboard.readText()").split()
    assert program == "plimsoll"
    done = subprocess.run([BINARY, *command], cwd=live.directory, env=live.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (live.directory / f"{agent.session[:8]}.jsonl").read_text() == got
    assert "line 23 keeps the figure" in got and json.loads(got.splitlines()[0])["_meta"]["session"] == agent.session


def test_what_if_is_the_labs_answer(stage, played):
    live, agent = played
    page = stage.open(url(live, agent, "whatif"))
    # A build without optimisation takes its time.
    expect(page.get_by_text("replayed by the lab")).to_be_visible(timeout=4 * PATIENCE)
    compare = page.get_by_role("region", name="As it is, and what if")
    expect(compare.get_by_role("row", name="Passes")).to_be_visible()
    slider = page.get_by_role("slider", name="Budget")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "5,000 tokens")
    expect(compare).to_contain_text("--budget 5000")
    keep(page, "live-whatif")


def test_withheld_content_is_nowhere(stage, starts):
    live = starts(PLIMSOLL__CONSOLE__CONTENT="off")
    agent = Agent(live).tell(TASK).work()
    page = stage.open(live.url)
    expect(page.get_by_text(f"session {agent.session[:8]}")).to_be_visible()
    item = gone(live, agent)
    for view in (*VIEWS[:5], f"view?item={item['no']}"):
        page.goto(url(live, agent, view))
        expect(page.get_by_text("texts are withheld by console.content")).to_be_visible()
        expect(page.locator(".skrow")).to_have_count(0)
        text = page.content()
        assert "Read all parts" not in text and "keeps the figure" not in text and "nothing of note" not in text
    keep(page, "live-withheld")


def test_a_session_without_content_has_its_sizes(stage, starts):
    live = starts(PLIMSOLL__STORE__CONTENT="asked")
    agent = Agent(live).tell(TASK).work()
    live.stop_proxy()
    live.start()
    page = stage.open(url(live, agent, "timeline"))
    expect(page.get_by_text("no text of this session is in memory or stored")).to_be_visible()
    expect(page.locator(".ro")).to_contain_text(f"turn {session(live, agent)['row']['turn']}")
    page.goto(url(live, agent, "build"))
    expect(page.get_by_text("Nothing to build from")).to_be_visible()


def test_a_proxy_that_starts_again_is_found_again(stage, played):
    live, agent = played
    stage.allow("net::")
    stage.allow("status of 403")
    page = stage.open(url(live, agent, "timeline"))
    expect(page.get_by_role("button", name="Evict …")).to_be_enabled()
    live.stop_proxy()
    expect(page.get_by_text("No word from the server.")).to_be_visible()
    expect(page.get_by_role("button", name="Evict …")).to_be_disabled()
    keep(page, "live-lost")
    live.start()
    expect(page.get_by_text("No word from the server.")).to_have_count(0)
    agent.tell(f"{TASK} Once more.").turn()
    expect(page.locator(".ro")).to_contain_text(f"turn {session(live, agent)['row']['turn']}")
    # The page's token is that of the process that is gone.
    page.get_by_role("button", name="Evict …").click()
    expect(page.get_by_role("alert")).to_contain_text("no_token")


def test_the_admin_token_is_asked_for_once(stage, starts):
    token = "0123456789abcdef0123456789abcdef"
    live = starts(PLIMSOLL__ADMIN__TOKEN=token)
    stage.allow("status of 401")
    stage.allow("net::")
    page = stage.open(live.url)
    field = page.get_by_label("Admin token")
    field.fill("f" * 32)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("This is not the token.")
    keep(page, "live-login")
    field.fill(token)
    page.get_by_role("button", name="Log in").click()
    # What the page reads and the stream of events both have the cookie.
    expect(page.get_by_role("heading", name="No session yet")).to_be_visible()
    expect(page.locator(".pill.live")).to_be_visible()
    agent = Agent(live).tell(TASK)
    agent.turn()
    expect(page.locator("table.ovt tr.lk")).to_have_count(1)
    page.reload()
    expect(page.locator("table.ovt tr.lk")).to_have_count(1)
    # The cookie ends with the process, and the page notices by itself.
    live.stop_proxy()
    live.start()
    expect(field).to_be_visible()

"""The states of the console, in a browser: empty, waiting, lost, refused, withheld."""

import contextlib

import fake_server
import recorded
from conftest import PHONE, SESSION, WIDE, keep, session_url
from playwright.sync_api import TimeoutError, expect


def test_an_empty_console_says_how_to_begin(stage, fake):
    fake.rows = []
    page = stage.open(fake.url)
    expect(page.get_by_role("heading", name="No session yet")).to_be_visible()
    expect(page.get_by_text("export OPENAI_BASE_URL=http://127.0.0.1:8787/v1")).to_be_visible()
    # Nobody has asked the upstream anything yet.
    upstream = page.locator(".figs.over .fig", has_text="Upstream")
    expect(upstream).to_contain_text("no request since the start")
    expect(upstream).not_to_contain_text("answers")
    expect(upstream.locator(".dot.off")).to_be_visible()
    assert page.locator(".empty pre").inner_text().splitlines()[1] == "export ANTHROPIC_BASE_URL=http://127.0.0.1:8787"
    page.get_by_role("button", name="Copy both").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    keep(page, "empty")


def test_the_frame_is_there_at_once_and_after_a_while_it_says_what_is_awaited(stage, fake):
    fake.delay = 4.0
    page = stage.open(fake.url)
    expect(page.locator(".skel").first).to_be_visible()
    expect(page.get_by_role("link", name="Overview", exact=True)).to_be_visible()
    expect(page.get_by_text("reading the list of sessions", exact=True)).to_be_visible()
    keep(page, "waiting")
    fake.delay = 0
    expect(page.locator("table.ovt tr.lk")).to_have_count(13)


def test_a_lost_server_greys_the_figures_and_is_found_again(stage, fake):
    stage.allow("net::")
    page = stage.open(session_url(fake, "view", "?turn=147&item=90"))
    panel = page.get_by_role("complementary", name="Item Grep:90")
    expect(panel.get_by_role("button", name="Pin")).to_be_enabled()
    fake.silent = True
    fake.hang_up()
    expect(page.get_by_text("No word from the server.")).to_be_visible()
    expect(page.get_by_text("What you see is of")).to_be_visible()
    expect(panel.get_by_role("button", name="Pin")).to_be_disabled()
    keep(page, "lost")
    fake.rows[0] = {**fake.rows[0], "recalls": 7}
    fake.silent = False
    # The page asks again by itself as well, and then the button is gone.
    with contextlib.suppress(TimeoutError):
        page.get_by_role("button", name="Now").click(timeout=5_000)
    expect(page.get_by_text("No word from the server.")).to_have_count(0)
    expect(page.get_by_text("7 recalls brought back")).to_be_visible()
    expect(panel.get_by_role("button", name="Pin")).to_be_enabled()


def test_a_gap_in_the_events_has_everything_read_again(stage, fake):
    page = stage.open(session_url(fake))
    expect(page.get_by_text("2 recalls brought back")).to_be_visible()
    fake.rows[0] = {**fake.rows[0], "recalls": 3}
    fake.tell("resync", "ResyncEvent", {"missed": 12})
    expect(page.get_by_text("3 recalls brought back")).to_be_visible()


def test_a_store_that_does_not_answer_is_said_and_asked_again(stage, fake):
    stage.allow("status of 503")
    fake.refuse["sessions"] = fake_server.Refusal(503, "store_unavailable", "The store does not answer.")
    page = stage.open(fake.url)
    expect(page.get_by_role("alert")).to_contain_text("The store does not answer. 503 store_unavailable")
    fake.refuse.clear()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("table.ovt tr.lk")).to_have_count(13)


def test_an_unknown_session(stage, fake):
    stage.allow("status of 404")
    page = stage.open(session_url(fake, session="00000000deadbeef"))
    expect(page.get_by_role("alert")).to_contain_text("No session 00000000deadbeef is stored or in memory.")


def test_withheld_content_is_nowhere(stage, fake):
    fake.content = "off"
    page = stage.open(fake.url)
    expect(page.get_by_text("session c88ce2a9")).to_be_visible()
    expect(page.get_by_text("content: off")).to_be_visible()
    said = [page.content()]
    for view in ("timeline", "evictions?pass=70&item=Grep:90", "turns", "view?turn=75&item=90", "build"):
        page.goto(f"{fake.url}/#/s/{SESSION}/{view}")
        page.wait_for_load_state("networkidle")
        expect(page.get_by_text("texts are withheld by console.content")).to_be_visible()
        if view.startswith("view"):
            expect(page.get_by_text("Its text is withheld by console.content.")).to_be_visible()
            keep(page, "withheld")
        said.append(page.content())
    expect(page.get_by_role("heading", name="Build is off")).to_be_visible()
    for secret in ("Does this change applies", "strat := GetStrategy", "TestResume_SessionLogAlreadyExists", "checkpointID"):
        assert all(secret not in text for text in said), secret


def test_a_page_that_opens_before_the_server_speaks(stage, fake):
    stage.allow("net::")
    page = stage.open(fake.url)
    expect(page.locator("table.ovt tr.lk")).to_have_count(13)
    fake.silent = True
    fake.hang_up()
    page.goto(f"{fake.url}/#/s/{SESSION}/timeline")
    expect(page.get_by_role("alert").first).to_contain_text("No word from the server.")
    expect(page.get_by_text("The server does not answer.")).to_be_visible()


def test_a_session_that_is_only_observed_says_would_be(stage, fake):
    fake.rows = fake.rows[:3]
    row = fake.rows[0]
    row.update(mode="observe", projected=row["saved"], saved=None)
    assert row["session"] == SESSION
    money = row["projected"]["usd"]
    net, whole = f"${abs(money['net']):.2f}", f"${money['whole']:.2f}"
    page = stage.open(fake.url)
    line = page.locator("table.ovt tr.lk").filter(has_text=SESSION[:8])
    for words in ("only observed", "would be", f"would: {row['passes']}", "would: +"):
        expect(line).to_contain_text(words)
    expect(page.locator(".figs.over")).to_contain_text(f"would have saved +{net} of {whole} in 1 observed session")
    for view, words in (
        ("timeline", "would have sent, by part"),
        ("evictions", "Would-be pass of turn"),
        ("turns", "Would be sent"),
        ("view", "What the model would have been sent"),
    ):
        page.goto(session_url(fake, view))
        expect(page.get_by_text(words).first).to_be_visible()
        expect(page.get_by_role("note")).to_contain_text("nothing was evicted, and nothing was saved")
        figures = page.get_by_role("region", name="Figures of the session")
        for words in ("Sent as it came", f"the view would be {row['out']:,}", "Would have saved, net", net, whole):
            expect(figures).to_contain_text(words)
        expect(page.get_by_role("button", name="Evict …")).to_have_count(0)
    keep(page, "observed")
    page.goto(session_url(fake, "timeline"))
    expect(page.locator(".ends")).to_contain_text("would be sent")
    # Where nothing was managed, the overview has nothing that was saved.
    fake.rows = [row]
    page.goto(fake.url)
    figures = page.locator(".figs.over .fig.saved")
    expect(figures).to_contain_text("Would have saved, net")
    expect(figures).to_contain_text("nothing was managed")


LONG = "n" * 3000


def test_an_address_that_no_page_wrote_is_answered_in_words(stage, fake):
    stage.allow("404")
    page = stage.open(f"{fake.url}/#/s/%")
    expect(page.get_by_role("alert")).to_contain_text("unknown_session")
    page.goto(f"{fake.url}/#/s/%E0%A4%A/turns")
    expect(page.get_by_role("alert")).to_contain_text("unknown_session")
    page.goto(f"{fake.url}/#/")
    expect(page.locator("table.ovt tr.lk").first).to_be_visible()


def test_names_of_any_length_leave_the_page_as_wide_as_it_is(stage, fake):
    stage.allow("404")

    def fits(page, size):
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert LONG not in page.locator("#app").inner_text()

    fake.rows[0] = {**fake.rows[0], "model": LONG, "profile": LONG}
    for size in (WIDE, PHONE):
        page = stage.open(fake.url, size)
        expect(page.get_by_role("heading", level=1).first).to_be_attached()
        expect(page.get_by_text("nnnn…").first).to_be_attached() if size is WIDE else None
        fits(page, size)
        page.goto(session_url(fake))
        expect(page.get_by_text("nnnn…").first).to_be_visible()
        fits(page, size)
        page.goto(f"{fake.url}/#/s/{LONG}")
        expect(page.get_by_role("alert")).to_contain_text("nnnn…")
        fits(page, size)

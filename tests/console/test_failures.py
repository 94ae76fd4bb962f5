"""Requests that failed, in a browser: the overview's count, the page, the rows among a session's turns."""

import recorded
from conftest import SESSION, keep, session_url
from playwright.sync_api import expect


def rows(page):
    return page.locator("table.fails tr.lk")


def turns(page):
    return page.locator("table.turns tr.lk")


def test_the_count_leads_to_the_requests_and_they_to_their_session(stage, fake):
    page = stage.open(fake.url)
    figures = page.locator(".figs.over")
    expect(figures).to_contain_text("4xx 3, 5xx 2, broke off 1")
    figures.get_by_role("link", name="6 failed").click()
    expect(page.get_by_role("heading", name="Failed requests")).to_be_visible()
    expect(rows(page)).to_have_count(6)
    expect(rows(page).nth(0)).to_contain_text("429")
    expect(rows(page).nth(0)).to_contain_text("rate_limit_exceeded: Rate limit reached")
    expect(rows(page).nth(0)).to_contain_text("tried again 2 times")
    expect(rows(page).nth(4)).to_contain_text("host_not_allowed: no host")
    # A session that has only failed has no page.
    expect(rows(page).nth(5)).to_contain_text("01234567")
    expect(rows(page).nth(5).get_by_role("link")).to_have_count(0)
    rows(page).nth(2).get_by_role("link").click()
    expect(turns(page).first).to_be_visible()


def test_a_failure_opens_by_keys_and_says_what_was_tried(stage, fake):
    page = stage.open(f"{fake.url}/#/failures")
    opener = rows(page).nth(3).get_by_role("button")
    opener.focus()
    page.keyboard.press("Enter")
    expect(opener).to_have_attribute("aria-expanded", "true")
    inner = page.locator("tr.inner")
    expect(inner.locator("pre")).to_contain_text("tool_use ids must be unique")
    for text in ("a call was answered 400", "req_3", "the agent’s own request was sent (refused twice)", "the agent got 400"):
        expect(inner).to_contain_text(text)
    keep(page, "failures")
    page.keyboard.press("Enter")
    expect(inner).to_have_count(0)


def test_failed_turns_stand_among_the_turns_at_their_time(stage, fake):
    page = stage.open(session_url(fake, "turns"))
    expect(turns(page).first).to_be_visible()
    chip = page.get_by_role("button", name="failed 4")
    before = turns(page).filter(has=page.get_by_role("link", name="140", exact=True))
    above = before.locator("xpath=preceding-sibling::tr[1]")
    expect(above).to_contain_text("failed429tried again 2 times")
    expect(above).to_contain_text("rate_limit_exceeded: Rate limit reached")
    expect(page.get_by_role("status").last).to_contain_text("4 failed")
    chip.click()
    expect(turns(page)).to_have_count(4)
    expect(turns(page).nth(2)).to_contain_text("broke off")
    expect(turns(page).nth(2)).to_contain_text("the stream ended early")
    turns(page).nth(3).get_by_role("link").click()
    # Whoever came for one sees it.
    expect(page.locator("tr.inner pre")).to_contain_text("tool_use ids")


def test_a_failure_is_there_as_it_happens(stage, fake):
    page = stage.open(f"{fake.url}/#/failures")
    expect(rows(page)).to_have_count(6)
    fake.failures.insert(0, {**recorded.failure(0, fake.rows), "number": 7, "status": 418})
    fake.tell("failed", "FailedEvent", {"session": SESSION, "tenant": "dd"})
    expect(rows(page)).to_have_count(7)
    expect(rows(page).nth(0)).to_contain_text("418")


def test_what_was_said_is_withheld_where_content_is(stage, fake):
    fake.content = "off"
    page = stage.open(f"{fake.url}/#/failures?number=3")
    expect(page.locator("tr.inner pre")).to_have_text("What it said is withheld by console.content.")
    expect(page.locator("main")).not_to_contain_text("tool_use ids")


def test_without_a_failure_the_page_says_what_would_stand_there(stage, fake):
    fake.failures.clear()
    page = stage.open(f"{fake.url}/#/failures")
    expect(page.get_by_role("heading", name="No request has failed")).to_be_visible()
    expect(page.get_by_text("plimsoll_http_requests_total")).to_be_visible()

"""What a person asks of a session, in a browser: pin, evict, build, what if."""

import json

import fake_server
import pytest
from conftest import PHONE, SESSION, keep, session_url, until
from playwright.sync_api import expect


def item_panel(stage, fake):
    page = stage.open(session_url(fake, "view", "?turn=147&item=90"))
    return page, page.get_by_role("complementary", name="Item Grep:90")


def test_a_line_for_the_agent_has_the_model_recall_an_item(stage, fake):
    page, panel = item_panel(stage, fake)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel.get_by_role("button", name="Copy a line that has the model recall it").click()
    expect(panel.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == 'Call the tool recall with the id "Grep:90".'


def test_an_original_is_recalled_with_the_next_pass_or_for_its_price_at_once(stage, fake):
    page, panel = item_panel(stage, fake)
    panel.get_by_role("button", name="Recall into view").press("Enter")
    expect(panel).to_contain_text("Grep:90 comes back with the turn of the next pass.")
    expect(panel).to_contain_text("it adds at most 1.4k tokens and costs $0.002")
    expect(page.get_by_text("the recall of Grep:90")).to_be_visible()
    panel.get_by_role("button", name="Recall Grep:90 at the next request").press("Enter")
    expect(panel).to_contain_text("Grep:90 comes back with the session's next request.")
    assert fake.asked == [("recall", {"items": ["Grep:90"], "now": now}) for now in (False, True)]
    keep(page, "recall-item")


def test_an_address_is_gone_to_within_the_same_view(stage, fake):
    page = stage.open(session_url(fake, "build", "?before=141"))
    cut = page.get_by_label("Take nothing from this turn on")
    expect(cut).to_have_value("141")
    expect(page.get_by_text("141–145 left out")).to_be_visible()
    page.get_by_role("link", name="Build").click()
    expect(cut).to_have_value("")
    page.go_back()
    expect(cut).to_have_value("141")


def test_what_waits_is_taken_back(stage, fake):
    page, panel = item_panel(stage, fake)
    panel.get_by_role("button", name="Recall into view").click()
    expect(panel).to_contain_text("Noted, and not yet done")
    panel.get_by_role("button", name="Take it back").click()
    expect(panel).to_contain_text("Taken back: Grep:90 stays as it is.")
    expect(page.get_by_text("the recall of Grep:90")).to_have_count(0)
    panel.get_by_role("button", name="Recall into view").click()
    page.get_by_role("button", name="Take back what is asked of Grep:90").click()
    expect(page.get_by_text("the recall of Grep:90")).to_have_count(0)
    assert [action for action, _ in fake.asked] == ["recall", "withdraw"] * 2


def test_what_is_done_is_no_longer_said_to_be_noted(stage, fake):
    page, panel = item_panel(stage, fake)
    panel.get_by_role("button", name="Recall into view").click()
    expect(panel).to_contain_text("Noted, and not yet done")
    page.get_by_role("button", name="Evict …").click()
    page.get_by_role("button", name="Evict at the next request").click()
    expect(page.get_by_text("a pass down to the floor with the session's next request")).to_be_visible()
    fake.waiting = {"pins": 0, "evict": False, "evictions": [], "recalls": []}
    fake.next_turn(SESSION)
    expect(page.get_by_text("not yet done")).to_have_count(0)
    expect(panel.get_by_role("button", name="Recall into view")).to_be_visible()


def test_where_nothing_can_be_recalled_the_line_for_the_agent_stays(stage, fake):
    stage.allow("status of 409")
    words = "nothing can be recalled for the model here: the session runs with thinking"
    fake.refuse["recall"] = fake_server.Refusal(409, "not_recallable", words)
    _, panel = item_panel(stage, fake)
    panel.get_by_role("button", name="Recall into view").click()
    expect(panel.get_by_role("alert")).to_contain_text(words)
    expect(panel.get_by_role("button", name="Copy a line that has the model recall it")).to_be_enabled()


def test_an_item_is_pinned_and_unpinned(stage, fake):
    page, panel = item_panel(stage, fake)
    panel.get_by_role("button", name="Pin").click()
    expect(panel).to_contain_text("Grep:90 is pinned from the session's next turn on.")
    page.get_by_role("button", name="Unpin Grep:90").click()
    expect(page.get_by_text("Grep:90 is no longer pinned")).to_be_visible()
    assert [action for action, _ in fake.asked] == ["pin", "unpin"]


def test_a_pass_is_asked_for_after_its_price_was_said(stage, fake):
    page = stage.open(session_url(fake))
    page.get_by_role("button", name="Evict …").click()
    expect(page.get_by_text("takes out at most 11k tokens")).to_be_visible()
    price = page.get_by_text("costs at most $0.024: the provider reads up to 21k tokens anew")
    expect(price).to_be_visible()
    # Whoever finds it dear asks for nothing, and is back where the question came from.
    page.get_by_role("button", name="Cancel").click()
    expect(price).to_have_count(0)
    expect(page.get_by_role("button", name="Evict …")).to_be_focused()
    page.get_by_role("button", name="Evict …").click()
    page.get_by_role("button", name="Evict at the next request").click()
    expect(page.get_by_text("a pass down to the floor with the session's next request")).to_be_visible()
    expect(page.get_by_text("waits: a pass")).to_be_visible()
    assert fake.asked == [("evict", {"now": now}) for now in (False, False, True)]


def test_an_item_is_evicted_in_the_next_pass_or_for_its_price_at_once(stage, fake):
    one = next(
        item
        for item in reversed(fake.details[SESSION]["items"])
        if item["role"] == "call" and not item["marks"]
    )
    page = stage.open(session_url(fake, "view", f"?turn=147&item={one['no']}"))
    panel = page.get_by_role("complementary", name=f"Item {one['id']}")
    # The keyboard alone does it.
    panel.get_by_role("button", name="Evict", exact=True).press("Enter")
    expect(panel).to_contain_text(f"{one['id']} leaves the view with the next pass.")
    expect(panel).to_contain_text("takes out at most 11k tokens and costs at most $0.024: the provider")
    expect(page.get_by_text(f"the eviction of {one['id']}")).to_be_visible()
    now = panel.get_by_role("button", name=f"Evict {one['id']} at the next request")
    now.focus()
    page.keyboard.press("Enter")
    expect(panel).to_contain_text(f"{one['id']} leaves the view with the session's next request.")
    asks = [{"items": [one["id"]], "now": now} for now in (False, True)]
    assert fake.asked == [("evict", ask) for ask in asks]
    keep(page, "evict-item")


def test_what_may_not_be_evicted_is_said_beside_the_item(stage, fake):
    stage.allow("status of 409")
    one = next(
        item
        for item in reversed(fake.details[SESSION]["items"])
        if item["role"] == "call" and not item["marks"]
    )
    words = f"{one['id']} can't be evicted: it is pinned: unpin it first"
    fake.refuse["evict"] = fake_server.Refusal(409, "not_evictable", words)
    page = stage.open(session_url(fake, "view", f"?turn=147&item={one['no']}"))
    panel = page.get_by_role("complementary", name=f"Item {one['id']}")
    panel.get_by_role("button", name="Evict", exact=True).click()
    expect(panel.get_by_role("alert")).to_contain_text(words)
    expect(panel.get_by_role("alert")).to_contain_text("409 not_evictable")


def test_what_stands_no_longer_or_is_a_users_has_no_button_to_evict_it(stage, fake):
    page, panel = item_panel(stage, fake)
    expect(panel.get_by_role("button", name="Copy original")).to_be_visible()
    expect(panel.get_by_role("button", name="Evict", exact=True)).to_have_count(0)


def test_a_refusal_is_said_as_the_server_says_it(stage, fake):
    stage.allow("status of 409")
    words = "nothing of this session may be evicted"
    fake.refuse["evict"] = fake_server.Refusal(409, "nothing_evictable", words)
    page = stage.open(session_url(fake))
    page.get_by_role("button", name="Evict …").click()
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.get_by_role("alert")).to_contain_text("409 nothing_evictable")


def build(stage, fake, query=""):
    page = stage.open(session_url(fake, "build", query))
    expect(page.get_by_role("button", name="Download")).to_be_enabled()
    return page


def last_build(fake):
    return [body for action, body in fake.asked if action == "build"][-1]


def test_a_finding_and_its_exchange_exclude_each_other(stage, fake):
    page = build(stage, fake)
    finding = page.get_by_label("finding of log-exists-failure")
    exchange = page.get_by_label("exchange of 2–48")
    expect(finding).to_be_checked()
    exchange.check()
    expect(finding).not_to_be_checked()
    finding.check()
    expect(exchange).not_to_be_checked()
    page.get_by_role("button", name="All findings").click()
    expect(page.get_by_text("8 messages")).to_be_visible()
    page.get_by_role("button", name="None").click()
    expect(page.get_by_text("Choose exchanges or findings.")).to_be_visible()


def test_a_single_original_is_taken(stage, fake):
    page = build(stage, fake)
    page.get_by_role("button", name="None").click()
    page.get_by_role("button", name="and when I do `entire resume`").click()
    page.get_by_label("Grep:8", exact=True).check()
    expect(page.get_by_text("1 message ")).to_be_visible()
    assert last_build(fake)["items"] == ["Grep:8"]


@pytest.mark.parametrize("label, kind", [("Chat", "chat"), ("Responses", "responses"), ("Messages", "messages")])
def test_a_session_is_built_as_a_file(stage, fake, label, kind):
    page = build(stage, fake)
    page.get_by_role("button", name=label, exact=True).click()
    expect(page.get_by_text(f"c88ce2a9-{kind}.json")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == f"c88ce2a9-{kind}.json"
    made = json.loads(download.value.path().read_text())
    assert made["model"] == "gpt-5" and len(made["messages"]) == 48
    keep(page, f"build-{kind}")


@pytest.mark.parametrize(
    "label, kind", [("Claude Code", "claude"), ("codex", "codex"), ("pi", "pi"), ("opencode", "opencode")]
)
def test_a_session_is_built_as_a_file_that_an_agent_resumes_from(stage, fake, label, kind):
    page = build(stage, fake)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=label, exact=True).click()
    put, run = fake_server.RESUMES[kind]
    expect(page.locator("p.resume")).to_contain_text(f"Put it in {put}. Resume with {run}" if put else f"Resume with {run}")
    page.get_by_role("button", name="Copy command").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == run
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == f"c88ce2a9-{kind}.jsonl"
    assert len(download.value.path().read_text().splitlines()) == 48
    assert last_build(fake)["format"] == kind
    keep(page, f"build-{kind}")


def test_a_handoff_text(stage, fake):
    page = build(stage, fake)
    page.get_by_role("button", name="handoff text").click()
    expect(page.locator("pre.preview")).to_contain_text("# Handoff")


def test_a_fork_from_before_a_turn_takes_nothing_later(stage, fake):
    page = stage.open(session_url(fake, "view", "?turn=25"))
    page.get_by_role("link", name="Fork from before turn 25").click()
    expect(page.get_by_label("Take nothing from this turn on")).to_have_value("25")
    expect(page.get_by_role("button", name="Download")).to_be_enabled()
    assert last_build(fake)["turns"] == [[1, 24]]
    expect(page.get_by_text("left out").first).to_be_visible()
    page.get_by_label("Take nothing from this turn on").fill("50")
    expect(page.get_by_label("exchange of turn 49")).to_be_checked()
    expect(page.locator(".made > div")).to_have_count(84)
    assert last_build(fake)["turns"] == [[1, 49]]


def test_what_if_plays_other_lines(stage, fake):
    page = stage.open(session_url(fake, "whatif"))
    expect(page.get_by_text("replayed by the lab")).to_be_visible()
    compare = page.get_by_role("region", name="As it is, and what if")
    slider = page.get_by_role("slider", name="Budget")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "80,000 tokens")
    expect(compare.get_by_role("row", name="Cost")).to_contain_text("$1.13$1.71")
    expect(compare).to_contain_text("--budget 80000")
    page.get_by_role("button", name="0.5", exact=True).click()
    expect(compare.get_by_role("columnheader", name="80,000, 0.5")).to_be_visible()
    page.get_by_role("button", name="recency").click()

    def policies():
        return {policy for action, body in fake.asked if action == "whatif" for policy in body["policies"]}

    until(page, lambda: policies() == {"cwl", "none", "tool-prune", "recency"})
    expect(page.get_by_text("replayed by the lab")).to_be_visible()
    keep(page, "whatif")
    page.get_by_role("button", name="Back to 40k").click()
    expect(slider).to_have_attribute("aria-valuetext", "40,000 tokens")


def test_what_is_played_is_not_played_again(stage, fake):
    page = stage.open(session_url(fake, "whatif"), PHONE)
    expect(page.get_by_role("region", name="As it is, and what if").get_by_role("row", name="Cost")).to_be_visible()
    # The row stands there before the last of the policies was asked for.
    expect(page.get_by_role("progressbar")).to_have_count(0)
    once = len(fake.asked)
    page.get_by_role("button", name="nothing").click()
    page.get_by_role("button", name="tool-prune").click()
    expect(page.get_by_text("beside it")).to_be_visible()
    assert len(fake.asked) == once

"""The views of a session, in a browser: timeline, evictions, turns, view at a turn."""

import recorded
from conftest import PHONE, SESSION, keep, session_url
from playwright.sync_api import expect


def test_the_timeline_reads_one_turn_in_all_charts(stage, fake):
    page = stage.open(session_url(fake))
    expect(page.get_by_text("10 passes in 25 turns stopped above the floor")).to_be_visible()
    chart = page.get_by_label("Tokens by turn")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * (85 - 1) / 146, box["y"] + 100)
    expect(page.locator(".ro")).to_contain_text("turn 85")
    expect(page.locator(".ro")).to_contain_text("26,104")
    expect(page.locator(".tip")).to_contain_text("42k → 26k")
    expect(page.get_by_role("heading", name="Then")).to_be_visible()
    keep(page, "timeline", whole=True)
    page.mouse.click(box["x"] + box["width"] * (85 - 1) / 146, box["y"] + 100)
    expect(page.get_by_text("Turn 85 of 147")).to_be_visible()


def test_why_a_cache_missed_leads_to_what_changed(stage, fake):
    turn = fake.details[SESSION]["turns"][41]
    turn["missed"] = {"tokens": 31_000, "cause": "client_system", "idle_s": None, "lifetime_s": None, "message": 0, "said": None}
    change = {"turn": 42, "cause": "client_system", "same": "Now: 10:0", "before": "0", "after": "1", "behind": "\\nBe brief."}
    fake.changes = [change]
    page = stage.open(session_url(fake))
    # A lane of the timeline has a mark for it.
    expect(page.locator(".lanes").get_by_text("cache missed")).to_be_visible()
    page.get_by_role("link", name="Turns").click()
    page.get_by_role("button", name="cache missed").click()
    page.get_by_role("link", name="cache missed 31k: the agent’s system text changed").click()
    panel = page.get_by_role("region", name="What changed")
    expect(panel).to_contain_text("What changed before turn 42")
    expect(panel.locator("mark.was")).to_have_text("0")
    expect(panel.locator("mark.is")).to_have_text("1")
    expect(panel.locator("pre").first).to_have_text("Now: 10:00\nBe brief.")
    keep(page, "changed")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_have_count(0)
    # What is no longer in memory is said to be gone, and what is withheld to be withheld.
    fake.changes = []
    page.get_by_role("link", name="cache missed 31k").click()
    expect(panel).to_contain_text("It is not in memory")
    fake.content = "off"
    stage.allow("409 (Conflict)")
    page.reload()
    expect(panel).to_contain_text("content is withheld")


def test_which_tool_fills_the_view(stage, fake):
    page = stage.open(session_url(fake))
    tools = page.get_by_role("region", name="Tokens by tool")
    first = tools.locator("tbody tr").first
    expect(first).to_contain_text("Edit")
    expect(first).to_contain_text("2 not in view")
    # At an earlier turn it is what stood in that view.
    chart = page.get_by_label("Tokens by turn")
    chart.focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("region", name="By tool", exact=True)).to_contain_text("the view of turn 1 has")
    expect(tools.locator("tbody tr")).to_have_count(1)


def test_the_timeline_by_keys(stage, fake):
    page = stage.open(session_url(fake))
    chart = page.get_by_label("Tokens by turn")
    chart.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(chart).to_have_attribute("aria-valuetext", "turn 146: history 163,837, sent 27,522 tokens")
    brush = page.get_by_label("Turns shown")
    brush.focus()
    page.keyboard.press("ArrowUp")
    expect(brush).to_have_attribute("aria-valuetext", "turns 16 to 132")
    page.keyboard.press("Home")
    expect(brush).to_have_attribute("aria-valuetext", "turns 1 to 147")
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Turn 1 of 147")).to_be_visible()


def test_dragging_below_the_chart_zooms_and_filters(stage, fake):
    page = stage.open(session_url(fake))
    box = page.get_by_label("Turns shown").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 10, steps=4)
    page.mouse.up()
    expect(page.get_by_text("of 24: 9 explorations")).to_be_visible()
    page.get_by_role("button", name="All turns").click()
    expect(page.get_by_text("drag below to zoom")).to_be_visible()


def test_each_charts_facts_are_in_a_table(stage, fake):
    page = stage.open(session_url(fake))
    page.get_by_text("Tokens as a table").click()
    table = page.get_by_role("region", name="Tokens", exact=True).get_by_role("table")
    expect(table.get_by_role("row")).to_have_count(148)
    page.get_by_text("Episodes as a table").click()
    expect(page.get_by_role("cell", name="log-exists-failure", exact=True).first).to_be_visible()


def test_episodes_by_arrow_keys(stage, fake):
    page = stage.open(session_url(fake))
    chart = page.get_by_role("listbox", name="Episodes by turn")
    chart.focus()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    expect(chart.get_by_role("option", selected=True)).to_contain_text("log-exists-failure, exploration")
    expect(page.locator(".epbox")).to_contain_text("TestResume_SessionLogAlreadyExists")
    expect(page.locator(".epbox")).to_contain_text("skip-existing-logs")
    page.keyboard.press("Escape")
    expect(page.locator(".epbox")).to_have_count(0)


def test_the_timeline_grows_with_the_session(stage, fake):
    page = stage.open(session_url(fake))
    expect(page.locator(".ro")).to_contain_text("turn 147")
    fake.next_turn(SESSION)
    expect(page.locator(".ro")).to_contain_text("turn 148")
    expect(page.locator(".figs.sess")).to_contain_text("166,205")


def test_evictions_say_what_went_and_what_stands_there(stage, fake):
    page = stage.open(session_url(fake, "evictions"))
    passes = page.get_by_role("region", name="Passes")
    expect(passes.get_by_role("button")).to_have_count(17)
    passes.get_by_role("button", name="turn 70").click()
    moved = page.get_by_role("region", name="Items that moved")
    expect(moved.locator("tr.lk")).to_have_count(19)
    page.get_by_role("button", name="needed 3").click()
    expect(moved.locator("tr.lk")).to_have_count(3)
    page.get_by_role("button", name="All 19").click()
    moved.get_by_role("button", name="Grep:90").click()
    opened = moved.locator("tr.inner")
    expect(opened).to_contain_text("strat := GetStrategy()")
    expect(opened).to_contain_text("[clipped Grep:90")
    expect(opened).to_contain_text("The pass before turn 70 took it")
    expect(opened).to_contain_text("It came with 6,652 tokens, clipped to 1,933 in turn 70, removed in turn 85.")
    expect(opened.get_by_role("button", name="Copy original")).to_be_enabled()
    opened.get_by_role("button", name="Recall into view").click()
    expect(opened.get_by_role("button", name="Recall Grep:90 at the next request")).to_be_visible()
    stayed = page.get_by_role("region", name="What stayed, and why")
    expect(stayed).to_contain_text("open work depends on it")
    keep(page, "evictions", whole=True)
    passes.get_by_role("button", name="turn 70").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("heading", name="Pass of turn 85")).to_be_visible()


def test_an_item_is_found_among_the_evictions(stage, fake):
    page = stage.open(session_url(fake, "evictions"))
    passes = page.get_by_role("region", name="Passes")
    expect(passes.locator(".prow")).to_have_count(17)
    page.keyboard.press("/")
    page.keyboard.type("Grep:90")
    expect(passes.locator(".prow")).to_have_count(2)
    expect(page.get_by_role("heading", name="Pass of turn 85")).to_be_visible()
    expect(page.get_by_role("region", name="Items that moved").locator("tr.lk")).to_have_count(1)
    page.get_by_label("Find an item").fill("no item has this")
    expect(page.get_by_text("No pass moved an item that has this text.")).to_be_visible()
    page.get_by_label("Find an item").fill("")
    expect(passes.locator(".prow")).to_have_count(17)


def test_a_prologue_has_one_number_wherever_it_stands(stage, fake):
    detail = fake.details[SESSION]
    for turn in (85, 147):
        tokens = f"{detail['turns'][turn - 1]['prologue']:,}"
        page = stage.open(session_url(fake, "view", f"?turn={turn}"))
        expect(page.get_by_role("region", name=f"View at turn {turn}").locator(".vrow", has_text="prologue")).to_contain_text(tokens)
        if turn == 85:
            page.goto(session_url(fake, "evictions", "?pass=85"))
            expect(page.get_by_role("region", name="What stayed, and why").get_by_role("listitem").first).to_contain_text(tokens)
        page.goto(session_url(fake))
        page.get_by_label("Tokens by turn").focus()
        page.keyboard.press("End")
        for _ in range(147 - turn):
            page.keyboard.press("ArrowLeft")
        parts = page.get_by_role("region", name="Parts of the view")
        expect(parts.get_by_role("listitem").first).to_contain_text(f"system, tools, framing{tokens}")
        # The parts add up to what was sent.
        told = [int(text.replace(",", "")) for text in parts.get_by_role("listitem").locator("b").all_inner_texts()]
        assert abs(sum(told) - detail["turns"][turn - 1]["out"]) <= len(told) or turn == 147


def test_a_turn_is_typed(stage, fake):
    page = stage.open(session_url(fake, "view"))
    page.get_by_label("Go to turn").fill("70")
    page.get_by_label("Go to turn").press("Enter")
    expect(page.get_by_text("Turn 70 of 147")).to_be_visible()
    page.get_by_label("Go to turn").fill("9999")
    page.get_by_label("Go to turn").press("Enter")
    expect(page.get_by_text("Turn 147 of 147")).to_be_visible()


def test_turns_filter_and_open(stage, fake):
    page = stage.open(session_url(fake, "turns"))
    expect(page.get_by_text("147 turns")).to_be_visible()
    expect(page.locator("table.turns tbody")).to_contain_text("req_a2b41b")
    page.get_by_role("button", name="with a pass").click()
    expect(page.locator("table.turns tr.lk")).to_have_count(17)
    page.get_by_role("link", name="141", exact=True).click()
    expect(page.get_by_text("Turn 141 of 147")).to_be_visible()


def test_a_view_at_a_turn_by_keys(stage, fake):
    page = stage.open(session_url(fake, "view", "?turn=75"))
    expect(page.get_by_text("Turn 75 of 147")).to_be_visible()
    page.keyboard.press("[")
    expect(page.get_by_text("Turn 70 of 147")).to_be_visible()
    page.keyboard.press("]")
    expect(page.get_by_text("Turn 85 of 147")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("Turn 84 of 147")).to_be_visible()
    assert page.url.endswith("view?turn=84")


def test_a_view_at_a_turn_says_why_an_item_is_not_there(stage, fake):
    page = stage.open(session_url(fake, "view", "?turn=75"))
    view = page.get_by_role("region", name="View at turn 75")
    expect(view).to_contain_text("101,781")
    expect(view).to_contain_text("26,356")
    expect(view.get_by_role("button", name="Grep:90").get_by_role("img", name="clipped")).to_be_visible()
    view.get_by_role("button", name="Grep:90").click()
    panel = page.get_by_role("complementary", name="Item Grep:90")
    expect(panel).to_contain_text("Why: The pass before turn 70 took it")
    expect(panel).to_contain_text("strat := GetStrategy()")
    expect(panel.locator("tr.later")).to_have_count(1)
    keep(page, "view")
    page.get_by_role("button", name="All", exact=True).click()
    expect(view.locator(".vrow.gap")).to_have_count(0)
    page.get_by_role("button", name="Differences").click()
    gone = view.locator(".vrow.gap", has_text="13 items")
    gone.click()
    expect(view.get_by_role("button", name="Grep:8 ")).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


def test_an_item_is_found_by_a_path(stage, fake):
    page = stage.open(session_url(fake, "view"))
    expect(page.get_by_text("Turn 147 of 147")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("rewind.go:610")
    found = page.get_by_role("region", name="View at turn 147").get_by_role("button")
    expect(found).to_have_count(1)
    expect(found).to_contain_text("Read:81")
    page.keyboard.type("zzz")
    expect(page.get_by_text("No item of turn 147 has this text.")).to_be_visible()


def test_an_item_asked_for_by_an_address_is_opened(stage, fake):
    page = stage.open(session_url(fake, "view", "?turn=75&item=90"), PHONE)
    expect(page.get_by_role("complementary", name="Item Grep:90")).to_be_visible()
    keep(page, "view-phone")


def test_five_thousand_turns(stage, fake):
    row, detail = recorded.long(fake.rows[0], fake.details[SESSION])
    fake.rows.append(row)
    fake.details[row["session"]] = detail
    page = stage.open(session_url(fake, session=row["session"]))
    expect(page.locator(".ro")).to_contain_text("turn 5000")
    points = "[...document.querySelectorAll('.chart path')].reduce((a, p) => Math.max(a, p.getAttribute('d').length), 0)"
    # Two points a pixel column, of a dozen characters each.
    assert page.evaluate(points) < 1600 * 2 * 14
    assert page.evaluate("document.querySelectorAll('svg *').length") < 3000
    keep(page, "timeline-5000", whole=True)
    page.get_by_role("link", name="Turns").click()
    expect(page.get_by_text("5,000 turns")).to_be_visible()
    assert page.locator("table.turns tr.lk").count() < 120
    page.get_by_role("link", name="View at turn").click()
    expect(page.get_by_text("Turn 5000 of 5000")).to_be_visible()
    assert page.locator(".vrow").count() < 120

"""The overview, in a browser: figures, list, filters, keys, live rows, ten thousand sessions."""

import re

import recorded
from conftest import PHONE, keep
from playwright.sync_api import expect

TITLE = "Does this change applies to resume too?"


def rows(page):
    return page.locator("table.ovt tbody tr.lk")


def test_the_figures_say_whether_it_pays(stage, fake):
    page = stage.open(fake.url)
    figures = page.locator(".figs.over")
    expect(figures).to_contain_text("$3.08")
    expect(figures).to_contain_text("of $11.95 sent whole")
    for part in ("+$4.68", "−$0.76", "−$0.85"):
        expect(figures).to_contain_text(part)
    expect(figures).to_contain_text("51of 932 turns")
    expect(figures).to_contain_text("api.openai.com")
    # A record that came late is no turn that failed open.
    expect(figures).to_contain_text("dialect 1")
    expect(figures).to_contain_text("1 record written late, nothing lost")
    keep(page, "overview")


def spend(page):
    return page.get_by_role("region", name="Cost and savings")


def test_what_a_day_cost_and_saved_stands_first(stage, fake):
    page = stage.open(fake.url)
    # Today at once, and a bar for each of its hours.
    expect(spend(page).locator(".headline")).to_contain_text(re.compile(r"\$[\d.]+ paid.*saved.*sent whole"))
    assert spend(page).locator("svg.days g").count() in (23, 24, 25)
    spend(page).get_by_role("button", name="7 days").click()
    expect(spend(page).locator("svg.days g")).to_have_count(7)
    expect(spend(page).locator(".headline")).to_contain_text("$8.87 paid+$3.08 saved, 25.8 %$11.95 sent whole")
    # What the bars say stands in a table, for whoever does not see them.
    spend(page).get_by_text("Days as a table").click()
    table = spend(page).get_by_role("region", name="Days")
    expect(table.locator("tbody tr")).to_have_count(7)
    spend(page).get_by_role("button", name="30 days").click()
    expect(spend(page).locator("svg.days g")).to_have_count(30)
    spend(page).get_by_role("button", name="All").click()
    expect(spend(page).locator(".headline")).to_contain_text("$8.87 paid")
    keep(page, "spend")


def test_cost_is_told_by_model_program_tenant_and_role(stage, fake):
    page = stage.open(fake.url)
    spend(page).get_by_role("button", name="30 days").click()
    spend(page).get_by_text("By model, program, tenant and role").click()
    sums = spend(page).get_by_role("region", name="Sums")
    expect(sums.locator("tbody tr").first).to_contain_text("gpt-5")
    spend(page).get_by_role("button", name="Program").click()
    expect(sums).to_contain_text("codex")
    spend(page).get_by_role("button", name="Tenant").click()
    expect(sums.locator("tbody tr")).to_have_count(3)
    spend(page).get_by_role("button", name="Role").click()
    expect(sums).to_contain_text("hidden hops")
    expect(sums).to_contain_text("3 requests beside sessions")


def test_days_are_cut_in_the_browsers_zone(stage, fake):
    page = stage.open(fake.url, timezone_id="Asia/Kathmandu")
    with page.expect_request(re.compile("/api/spend")) as asked:
        spend(page).get_by_role("button", name="7 days").click()
    bounds = [int(bound) for bound in re.search(r"bounds=([\d%2C,]+)", asked.value.url)[1].replace("%2C", ",").split(",")]
    # Midnight there is a quarter past six in the evening in Greenwich.
    assert {bound // 1000 % 86400 for bound in bounds} == {18 * 3600 + 15 * 60}


def test_the_next_to_reach_the_budget_stands_first(stage, fake):
    for at, row in enumerate(fake.rows):
        row.update(parent=None, turns_to_pass=None if at % 5 == 1 or row["mode"] == "observe" else (7 * at + 1) % 11)
    page = stage.open(fake.url)
    cells = rows(page).locator("td:nth-child(3)")
    expect(cells.first).to_have_text("~1 turn")
    with page.expect_response(re.compile("sort=next")):
        page.get_by_role("button", name="Next pass").click()
    expect(cells.first).to_have_text("next turn")
    found = [int(text.split()[-2].lstrip("~")) for text in cells.all_inner_texts() if "~" in text]
    assert found == sorted(found) and len(found) > 5
    expect(cells.last).to_have_text("–")


def test_without_a_price_tokens_are_told_and_no_money(stage, fake):
    fake.priced = False
    page = stage.open(fake.url)
    spend(page).get_by_role("button", name="30 days").click()
    expect(spend(page).locator(".headline")).to_contain_text("no price is known")
    expect(spend(page).locator(".headline")).not_to_contain_text("$")
    spend(page).get_by_text("Days as a table").click()
    expect(spend(page).get_by_role("region", name="Days")).not_to_contain_text("$")
    # What is open stays so, whichever range is read.
    spend(page).get_by_role("button", name="7 days").click()
    expect(spend(page).get_by_role("region", name="Days").locator("tbody tr")).to_have_count(7)


def test_a_loss_is_not_green(stage, fake):
    fake.rows = [row for row in fake.rows if row["saved"] and row["saved"]["usd"]["net"] < 0]
    page = stage.open(fake.url)
    expect(page.locator(".figs.over .v.bad").first).to_contain_text("−$")
    expect(page.locator(".figs.over .v.good")).to_have_count(0)


def test_sub_agents_stand_under_their_parent_and_fold(stage, fake):
    page = stage.open(fake.url)
    expect(rows(page)).to_have_count(13)
    expect(rows(page).nth(0)).to_contain_text(TITLE)
    expect(rows(page).nth(1)).to_contain_text("can you fix the local branch")
    page.get_by_label(f"sub-agents and branches of {TITLE}").click()
    expect(rows(page)).to_have_count(12)
    expect(rows(page).nth(1)).not_to_contain_text("can you fix the local branch")
    # Its own page adds up what both of them came to.
    rows(page).nth(0).get_by_role("link").first.click()
    expect(page.locator(".family")).to_contain_text("With 1 sub-agent:")


def test_it_finds_filters_and_sorts(stage, fake):
    page = stage.open(fake.url)
    expect(rows(page)).to_have_count(13)
    page.keyboard.press("/")
    page.keyboard.type("seattle")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Find a session").fill("")
    expect(rows(page)).to_have_count(13)
    page.get_by_role("button", name="over budget").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="over budget").click()
    page.get_by_role("button", name="costs more").click()
    expect(rows(page)).to_have_count(6)
    page.get_by_role("button", name="costs more").click()
    page.get_by_role("button", name="only observed").click()
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="only observed").click()
    page.get_by_label("Model", exact=True).select_option("gpt-4o")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Zone").select_option("red")
    expect(page.get_by_text("No session fits.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(rows(page)).to_have_count(13)
    page.get_by_role("button", name="Saved, net").click()
    expect(rows(page).nth(0)).to_contain_text("+$1.28")
    expect(page.get_by_role("columnheader", name="Saved, net")).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Saved, net").click()
    expect(rows(page).nth(0)).to_contain_text("−$")


def test_a_path_leads_to_the_pass_that_took_it(stage, fake):
    page = stage.open(fake.url)
    page.get_by_label("Find a session").fill("cli/resume.go")
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("has cmd/entire/cli/resume.go")
    page.get_by_role("link", name=TITLE).click()
    expect(page).to_have_url(re.compile("evictions.*find=cli%2Fresume.go"))
    expect(page.get_by_label("Find an item")).to_have_value("cli/resume.go")
    expect(page.get_by_role("region", name="Items that moved")).to_contain_text("cli/resume.go")
    # Of several such items those that were missed come first, and each leads to its pass and its original.
    found = page.get_by_role("region", name="Items found").locator("tbody tr")
    expect(found.first).to_contain_text(re.compile("again|recalled|missed"))
    expect(found.last).to_contain_text(re.compile("in view|no"))
    name = found.first.get_by_role("link").inner_text()
    found.first.click()
    expect(page.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-expanded", "true")
    # It is in sight, wherever the page begins, and so is what can be done next.
    expect(page.get_by_role("button", name=name, exact=True)).to_be_in_viewport()
    expect(page.get_by_text("Needed later:")).to_be_in_viewport()
    expect(page.get_by_role("region", name="Items that moved").get_by_role("link", name="Fork from before turn")).to_be_visible()


def test_a_search_goes_on_where_it_stopped_until_all_are_searched(stage, fake):
    fake.most_searched = 5
    fake.rows = recorded.many(fake.rows, 12)
    for at in (1, 7, 11):
        fake.rows[at]["title"] = f"The heron of row {at}"
    page = stage.open(fake.url)
    expect(rows(page)).to_have_count(12)
    page.get_by_label("Find a session").fill("heron")
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_text("1 session · texts of 7 not searched")).to_be_visible()
    page.get_by_role("button", name="Search older").click()
    expect(page.get_by_text("2 sessions · texts of 2 not searched")).to_be_visible()
    page.get_by_role("button", name="Search older").click()
    expect(rows(page)).to_have_count(3)
    expect(rows(page).last).to_contain_text("The heron of row 11")
    expect(page.get_by_text("3 sessions", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Search older")).to_have_count(0)


def test_arrows_go_from_row_to_row_and_enter_opens(stage, fake):
    page = stage.open(fake.url)
    expect(rows(page)).to_have_count(13)
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=TITLE)).to_be_visible()
    expect(page).to_have_title(f"{TITLE} · Plimsoll")
    page.go_back()
    expect(rows(page)).to_have_count(13)


def test_a_turn_is_in_the_list_as_it_happens(stage, fake):
    page = stage.open(fake.url)
    row = rows(page).nth(0)
    expect(row.locator("td").nth(4)).to_have_text("147")
    fake.next_turn("c88ce2a93a9f26fe")
    expect(row.locator("td").nth(4)).to_have_text("148")
    expect(row).to_contain_text(TITLE)


def test_a_new_session_is_in_the_list_as_it_happens(stage, fake):
    page = stage.open(fake.url)
    expect(rows(page)).to_have_count(13)
    born = {**fake.rows[6], "session": "00000000000000ff", "turn": 1, "title": "Born just now", "parent": None}
    turn = {**fake.details["c88ce2a93a9f26fe"]["turns"][0]}
    event = {"session": born["session"], "tenant": born["tenant"], "row": born, "turn": turn}
    fake.tell("turn", "TurnEvent", event)
    expect(rows(page).nth(0)).to_contain_text("Born just now")
    expect(page.get_by_text("14 sessions")).to_be_visible()


def test_of_ten_thousand_sessions_only_those_near_the_screen_are_rows(stage, fake):
    fake.rows = recorded.many(fake.rows, 10_000)
    page = stage.open(fake.url)
    expect(page.get_by_text("10,000 sessions")).to_be_visible()
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"first paint with 10,000 sessions: {paint:.0f} ms")
    assert rows(page).count() < 100
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height > 10_000 * 46
    page.evaluate("scrollTo(0, 400 * 46)")
    expect(page.get_by_text("(405)")).to_be_visible()
    assert rows(page).count() < 100
    keep(page, "overview-10000")


def test_a_phone_has_cards(stage, fake):
    page = stage.open(fake.url, PHONE)
    # Of all cards those near the screen are made.
    expect(page.locator(".card").first).to_be_visible()
    page.mouse.wheel(0, 1200)
    expect(page.locator(".card").last).to_contain_text("turn")
    page.locator(".card a").first.click()
    expect(page.get_by_role("heading", name=TITLE)).to_be_visible()


def test_the_theme_is_turned_and_remembered(stage, fake):
    page = stage.open(fake.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(245, 246, 248)"
    page.get_by_role("button", name="Turn light or dark").click()
    assert page.evaluate(ground) == "rgb(13, 17, 21)"
    page.reload()
    expect(rows(page)).to_have_count(13)
    assert page.evaluate(ground) == "rgb(13, 17, 21)"

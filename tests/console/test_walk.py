"""The walk of `docs/use/console.md`, click for click: why a file's content left the view, getting it back, and a
fork from before a wrong turn. What it prints is how long a hand that knows the way takes."""

import json
import time

from conftest import keep
from playwright.sync_api import expect


def test_the_walk(stage, fake):
    began = time.monotonic()
    page = stage.open(fake.url)
    # Nobody presses a key before there is something to see.
    expect(page.locator("table.ovt tr.lk").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("resume too")
    expect(page.locator("table.ovt tr.lk")).to_have_count(1)
    page.get_by_role("link", name="Does this change applies to resume too?").click()
    page.get_by_role("link", name="View at turn").click()
    expect(page.get_by_text("Turn 147 of 147")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("rewind.go:610")
    page.get_by_role("button", name="Read:81").click()
    panel = page.get_by_role("complementary", name="Item Read:81")
    expect(panel).to_contain_text("Why: The pass before turn 85 took it")
    expect(panel).to_contain_text("RestoreLogsOnly restores session logs")
    keep(page, "walk-why")
    panel.get_by_role("button", name="Copy a line that has the model recall it").click()
    expect(panel.get_by_text("Copied")).to_be_visible()
    page.get_by_role("link", name="Turns").click()
    page.get_by_role("link", name="141", exact=True).click()
    page.get_by_role("link", name="Fork from before turn 141").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    expect(page.get_by_text("downloaded")).to_be_visible()
    keep(page, "walk-fork")
    made = json.loads(download.value.path().read_text())
    build = [body for action, body in fake.asked if action == "build"][-1]
    assert build["turns"] == [[1, 140]]
    assert made["messages"][0]["content"] == "Does this change applies to resume too?"
    print(f"the walk: {time.monotonic() - began:.1f} s")

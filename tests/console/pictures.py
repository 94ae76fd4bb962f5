"""Takes the pictures of `docs/use/console.md`: `python pictures.py DIRECTORY`.

The page shows recorded sessions from the fake server. Each picture is of a step of the walk that the page
describes, or of a view. Writes PNGs of 256 colours; owns no test.
"""

import io
import sys
from pathlib import Path

import fake_server
from conftest import CHROMIUM, SESSION
from PIL import Image
from playwright.sync_api import sync_playwright

SIZE = {"width": 1280, "height": 760}


def take(page, place, name):
    page.wait_for_load_state("domcontentloaded")
    page.wait_for_timeout(400)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(place / f"{name}.png", optimize=True)
    print(f"{name}.png: {(place / f'{name}.png').stat().st_size // 1024} KiB")


def walk(page, place, url):
    page.goto(url)
    page.locator("table.ovt tr.lk").first.wait_for()
    take(page, place, "overview")
    page.get_by_role("link", name="Does this change applies to resume too?").click()
    page.locator(".figs.sess").wait_for()
    page.get_by_role("link", name="View at turn").click()
    page.get_by_text("Turn 147 of 147").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("rewind.go:610")
    page.get_by_role("button", name="Read:81").click()
    page.locator(".sheet pre").first.wait_for()
    page.evaluate("scrollTo(0, 190)")
    take(page, place, "why")
    page.goto(f"{url}/#/s/{SESSION}/build?before=141")
    page.locator(".made").wait_for()
    page.evaluate("scrollTo(0, 240)")
    take(page, place, "fork")


def main():
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    server = fake_server.start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
        walk(page, place, server.url)
        dark = browser.new_page(viewport={**SIZE, "height": 900}, color_scheme="dark", reduced_motion="reduce")
        dark.goto(f"{server.url}/#/s/{SESSION}/timeline?episode=log-exists-failure")
        dark.locator(".epbox").wait_for()
        dark.evaluate("scrollTo(0, 130)")
        box = dark.get_by_label("Tokens by turn").bounding_box()
        dark.mouse.move(box["x"] + box["width"] * 84 / 146, box["y"] + 90)
        take(dark, place, "timeline")
        browser.close()


if __name__ == "__main__":
    main()

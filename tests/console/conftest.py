"""What the browser tests share: a browser, the fake server, and pages that may say nothing to the console.

Screenshots that tests keep are in `target/console/shots`. Owns the browser. Never starts a proxy.
"""

import os
import shutil
import time
from pathlib import Path

import fake_server
import pytest
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "target/console/shots"
CHROMIUM = os.environ.get("PLIMSOLL_CHROMIUM") or shutil.which("chromium")
SESSION = "c88ce2a93a9f26fe"
WIDE = {"width": 1600, "height": 1000}
PHONE = {"width": 390, "height": 844}
# No test is about time: this only ends one that would wait for ever.
PATIENCE = 90_000
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def browser():
    if not CHROMIUM:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is missing: Debian's package of that name has it")
        pytest.skip("chromium is missing")
    with sync_playwright() as playwright:
        # A container has no user namespaces for the browser's sandbox.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def fake():
    server = fake_server.start()
    yield server
    server.shutdown()
    server.silent = True
    assert server.faults == [], "the fake answered what the OpenAPI file does not allow"


class Stage:
    """Opens pages and keeps what they say to the console; `allow` names what may be said."""

    def __init__(self, browser):
        self.browser = browser
        self.said = []
        self.allowed = []
        self.contexts = []

    def open(self, url, size=None, theme="light", **more):
        context = self.browser.new_context(viewport=size or WIDE, color_scheme=theme, **more)
        context.set_default_timeout(PATIENCE)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: m.type in ("error", "warning") and self.said.append(m.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.goto(url)
        return page

    def allow(self, text):
        self.allowed.append(text)

    def faults(self):
        return [text for text in self.said if not any(allowed in text for allowed in self.allowed)]

    def close(self):
        """Closes the pages; before the server ends that they talk to, or they would say so."""
        while self.contexts:
            self.contexts.pop().close()


@pytest.fixture
def stage(browser):
    stage = Stage(browser)
    yield stage
    stage.close()
    assert stage.faults() == [], "the page spoke to the browser's console"


def until(page, true):
    """Waits for what no element shows."""
    deadline = time.monotonic() + PATIENCE / 1000
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        page.wait_for_timeout(50)


def keep(page, name, whole=False):
    """Keeps a picture of the page among the artefacts."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=whole)


def session_url(server, view="timeline", query="", session=SESSION):
    return f"{server.url}/#/s/{session}/{view}{query}"

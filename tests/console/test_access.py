"""Access: axe finds nothing serious, nothing is cropped, and nothing moves for those who asked for rest."""

import os
from pathlib import Path

import pytest
from conftest import PHONE, SESSION, WIDE, keep
from playwright.sync_api import expect

MODULES = Path(os.environ.get("PLIMSOLL_CONSOLE_MODULES", Path(__file__).parent / "node_modules"))
AXE = MODULES / "axe-core/axe.min.js"
ROUTES = {
    "overview": ("", "table.ovt tr.lk, .card"),
    "timeline": (f"s/{SESSION}/timeline?episode=log-exists-failure", ".epbox"),
    "over-the-line": ("s/5037ff023560b714/timeline", ".ins.bad"),
    "evictions": (f"s/{SESSION}/evictions?pass=70&item=Grep:90", "tr.inner pre"),
    "turns": (f"s/{SESSION}/turns", "table.turns tr.lk"),
    "view": (f"s/{SESSION}/view?turn=75&item=90", ".sheet pre"),
    "build": (f"s/{SESSION}/build", ".made"),
    "whatif": (f"s/{SESSION}/whatif", ".smalls"),
}
SCRIPT = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter(v => ['serious', 'critical', 'moderate'].includes(v.impact))
  .map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' ' + (n.any[0]?.message ?? '')).join(' | ')}`)"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("route", ROUTES)
def test_axe_finds_nothing(stage, fake, route, size, theme):
    if not AXE.exists():
        pytest.fail("npm's packages are not installed")
    path, awaited = ROUTES[route]
    page = stage.open(f"{fake.url}/#/{path}", size, theme, bypass_csp=True, reduced_motion="reduce")
    expect(page.locator(awaited).first).to_be_visible()
    keep(page, f"{route}-{theme}-{'wide' if size is WIDE else 'phone'}", whole=True)
    page.add_script_tag(path=AXE)
    assert page.evaluate(SCRIPT) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, "the page is cropped or scrolls sideways"


@pytest.mark.parametrize("motion, names", [("reduce", ["none"]), ("no-preference", ["pulse"])])
def test_nothing_moves_for_those_who_asked_for_rest(stage, fake, motion, names):
    page = stage.open(fake.url, reduced_motion=motion)
    expect(page.locator("table.ovt tr.lk")).to_have_count(13)
    moving = "[...new Set([...document.querySelectorAll('.live .dot')].map(d => getComputedStyle(d).animationName))]"
    assert page.evaluate(moving) == names


def test_everything_is_reached_by_tab(stage, fake):
    page = stage.open(fake.url)
    expect(page.locator("table.ovt tr.lk")).to_have_count(13)
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.innerText || document.activeElement.id || document.activeElement.ariaLabel"))
    assert "To the content" in seen[0] and "find" in seen, seen

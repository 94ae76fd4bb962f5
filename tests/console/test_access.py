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
    "failures": ("failures?number=3", "tr.inner pre"),
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


# What is wider than its box: a page that scrolls sideways, a column that stands beyond its table, and a cell, a head
# or a figure that is cut. What ends in an ellipsis, folds its lines or is a chart's own is meant so.
CUT = """() => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  const cut = wide > 0 ? [`the page, by ${wide}`] : [];
  for (const one of document.querySelectorAll('th, td, .fig, .figs, .tabs, .filters, .tw, .ph, .prow, .vrow, .acts')) {
    const box = one.getBoundingClientRect();
    const over = Math.max(one.scrollWidth - one.clientWidth - 1, box.right - innerWidth - 0.5);
    const folds = one.matches('tr.gap td') || getComputedStyle(one).textOverflow === 'ellipsis' && one.querySelector('.ell, .tag');
    if (box.width && over > 0 && !folds) cut.push(`${one.tagName}.${one.className} ${one.textContent.slice(0, 24)}, by ${over}`);
  }
  return cut;
}"""
LONG_ID = "mcp__a_server_with_a_long_name__and_a_tool_with_a_longer_one:90"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 640, 873, 1024, 1440])
def test_nothing_is_wider_than_the_page_and_no_column_is_cut(stage, fake, width, theme):
    for entry in fake.details[SESSION]["passes"]:
        for move in entry["moves"]:
            move["id"] = move["id"] if move["id"] == "Grep:90" else LONG_ID
    page = stage.open(fake.url, {"width": width, "height": 900}, theme, reduced_motion="reduce")
    for path, awaited in ROUTES.values():
        page.goto(f"{fake.url}/#/{path}")
        expect(page.locator(awaited).first).to_be_visible()
        assert page.evaluate(CUT) == [], path
        for head in page.locator("thead th:visible").all():
            assert head.evaluate("e => e.getBoundingClientRect().width") >= 30, (path, head.inner_text())


@pytest.mark.parametrize("motion, names", [("reduce", ["none"]), ("no-preference", ["pulse"])])
def test_nothing_moves_for_those_who_asked_for_rest(stage, fake, motion, names):
    page = stage.open(fake.url, reduced_motion=motion)
    expect(page.locator("table.ovt tr.lk")).to_have_count(13)
    moving = "[...new Set([...document.querySelectorAll('.live .dot')].map(d => getComputedStyle(d).animationName))]"
    assert page.evaluate(moving) == names


# The contrast of a shade with the ground of its panel.
CONTRAST = """(selector) => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((c) => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = light(getComputedStyle(document.querySelector('.panel')).backgroundColor);
  return [...document.querySelectorAll(selector)].map((one) => {
    const style = getComputedStyle(one);
    const shade = light(one instanceof SVGElement ? (style.stroke !== 'none' ? style.stroke : style.fill) : style.backgroundColor);
    return (Math.max(shade, ground) + .05) / (Math.min(shade, ground) + .05);
  });
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("chosen", ["light", "dark"])
def test_charts_and_marks_stand_where_the_system_sets_the_colours(stage, fake, theme, chosen):
    page = stage.open(fake.url, theme=theme, forced_colors="active")
    page.evaluate("theme => localStorage.setItem('plimsoll-theme', theme)", chosen)
    page.goto(f"{fake.url}/?#/s/{SESSION}/timeline")
    shades = page.locator(".lg .sq[style*=background]")
    expect(shades.first).to_be_visible()
    assert min(page.evaluate(CONTRAST, ".chart path[stroke='var(--sent)'], .lg .sq[style*=background]")) >= 2.5
    # What stands for what is still told by its colour.
    colours = shades.evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")
    assert len(set(colours)) == len(colours)
    keep(page, f"forced-{theme}-{chosen}", whole=True)
    page.goto(f"{fake.url}/?#/{ROUTES['evictions'][0]}")
    expect(page.locator("tr.inner pre").first).to_be_visible()
    assert min(page.evaluate(CONTRAST, ".moves .mv circle")) >= 2.5
    drawn = "e => getComputedStyle(e).outlineStyle + getComputedStyle(e).outlineWidth"
    passes = page.get_by_role("region", name="Passes")
    assert passes.locator("[aria-pressed=true]").evaluate(drawn) == "solid2px"
    assert passes.locator("[aria-pressed=false]").first.evaluate(drawn) != "solid2px"


def test_a_page_prints_whole_and_without_what_can_only_be_clicked(stage, fake):
    page = stage.open(f"{fake.url}/#/{ROUTES['evictions'][0]}", theme="dark")
    expect(page.locator("tr.inner pre").first).to_be_visible()
    page.emulate_media(media="print")
    for gone in (".top", ".tabs", ".acts", ".plist .btn"):
        assert page.locator(f"{gone}:visible").count() == 0, gone
    scrolls = "[...document.querySelectorAll('.plist, .tw, pre')].filter(e => e.clientHeight && e.scrollHeight > e.clientHeight + 1).length"
    assert page.evaluate(scrolls) == 0
    assert page.evaluate("getComputedStyle(document.querySelector('.panel')).backgroundColor") == "rgb(255, 255, 255)"
    page.goto(f"{fake.url}/?#/{ROUTES['turns'][0]}")
    rows = page.locator("table.turns tr.lk")
    expect(rows.first).to_be_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    failed = sum(one["session"] == SESSION for one in fake.failures)
    expect(rows).to_have_count(147 + failed)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(rows.nth(146)).to_have_count(0)


def test_everything_is_reached_by_tab(stage, fake):
    page = stage.open(fake.url)
    expect(page.locator("table.ovt tr.lk")).to_have_count(13)
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.innerText || document.activeElement.id || document.activeElement.ariaLabel"))
    assert "To the content" in seen[0] and "find" in seen, seen

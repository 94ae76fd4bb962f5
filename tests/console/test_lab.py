"""The pages that `plimsoll replay` and `tune` write, opened from disk in a browser: whole, alone, legible."""

import math
import os
import pty
import re
import subprocess

import lab
import pytest
from conftest import PHONE, WIDE, keep
from playwright.sync_api import expect
from test_access import AXE, SCRIPT

RUNS = {"replay": lab.replay, "several": lab.several, "tune": lab.tune, "idle": lab.idle}
SIZES = {"wide": WIDE, "phone": PHONE}
#: The boxes of a chart's texts of one kind, as [text, left, top, right, bottom].
BOXES = """(kind) => [...document.querySelectorAll(kind)].map(t => [t, t.getBoundingClientRect()])
  .map(([t, b]) => [t.textContent, b.left, b.top, b.right, b.bottom])"""
#: What reaches beyond the screen, unless it stands in a box that scrolls by itself.
CROPPED = """() => [...document.querySelectorAll('main *')].filter(e => !e.closest('.tw, .sr'))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5)
  .map(e => e.outerHTML.slice(0, 120))"""
COLOURS = r"\b(dark|light|black|white|grey|gray|red|green|blue|orange|yellow|purple)(er|est)?\b"


def opened(stage, name, size="wide", theme="light", **more):
    """A page from disk, and what it asked for."""
    asked = []
    page = stage.open("about:blank", SIZES[size], theme, **more)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(RUNS[name]().url)
    expect(page.locator(".figs.lab .fig").first).to_be_visible()
    return page, asked


def number(text):
    """A tick as a number: $1.50, 24k, 1.2M, 0.95."""
    found = re.fullmatch(r"−?\$?([\d,.]+)([kM]?)", text)
    assert found, text
    return float(found[1].replace(",", "")) * {"": 1, "k": 1e3, "M": 1e6}[found[2]]


def overlapping(boxes):
    """Pairs of boxes that cover each other by more than a hair."""
    hit = lambda a, b: a[1] < b[3] - 1 and b[1] < a[3] - 1 and a[2] < b[4] - 1 and b[2] < a[4] - 1  # noqa: E731
    return [(a[0], b[0]) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if hit(a, b)]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RUNS)
def test_a_page_from_disk_is_whole_alone_and_legible(stage, name, size, theme):
    if not AXE.exists():
        pytest.fail("npm's packages are not installed")
    page, asked = opened(stage, name, size, theme, bypass_csp=True, reduced_motion="reduce")
    for facts in page.locator("details.facts summary").all():
        facts.click()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(245, 246, 248)", "dark": "rgb(13, 17, 21)"}[theme]
    page.mouse.move(0, 0)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, "it scrolls sideways"
    assert page.evaluate(CROPPED) == []
    assert [url for url in asked if not url.startswith(("data:", "file:"))] == []
    assert [url for url in asked if url.startswith("file:")] == [RUNS[name]().url]
    keep(page, f"lab-{name}-{theme}-{size}", whole=True)
    page.add_script_tag(path=AXE)
    assert page.evaluate(SCRIPT) == []


@pytest.mark.parametrize("name", RUNS)
def test_the_browser_lets_a_page_ask_nobody(stage, name):
    page, _ = opened(stage, name)
    stage.allow("Content Security Policy")
    stage.allow("Failed to load resource")
    stage.allow("net::")
    refused = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'served', e => 'refused')")
    assert refused == "refused"
    assert page.evaluate("fetch(location.href).then(() => 'served', e => 'refused')") == "refused"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RUNS)
def test_ticks_are_round_and_labels_stand_apart(stage, name, size):
    page, _ = opened(stage, name, size)
    for chart in page.locator(".plane, .chart").all():
        ticks = chart.evaluate("(c) => [...c.querySelectorAll('text.tick')].map(t => [t.textContent, t.getAttribute('text-anchor')])")
        assert ticks, "a chart has no scale"
        for anchor in {own for _, own in ticks}:
            values = sorted(number(text) for text, own in ticks if own == anchor)
            assert len(values) >= 2, ticks
            step = (values[-1] - values[0]) / (len(values) - 1)
            assert all(abs(b - a - step) < step / 1e6 for a, b in zip(values, values[1:], strict=False)), values
            lead = step / 10 ** math.floor(math.log10(step) + 1e-9)
            assert min(abs(lead - fine) for fine in (1, 2, 2.5, 5)) < 1e-6, (values, lead)
    names = page.evaluate(BOXES, ".plane text.name")
    assert names, "no point has a name"
    assert overlapping(names) == []
    assert overlapping(page.evaluate(BOXES, ".plane text.tick")) == []
    assert overlapping(page.evaluate(BOXES, ".chart text")) == []
    points = page.evaluate("[...document.querySelectorAll('.plane circle.point')].length")
    # On a phone many points may have no room for a name; what matters most has one in any case.
    assert len(names) == points if size == "wide" else len(names) >= min(points, 4)


def test_on_the_page_of_policies_each_point_has_its_name(stage):
    for size in SIZES:
        page, _ = opened(stage, "replay", size)
        names = {name for text, *_ in page.evaluate(BOXES, ".plane text.name") for name in text.split(", ")}
        assert {"cwl", "none", "recency", "cwl-paper"} <= names, (size, names)


def test_the_figures_of_replay_are_those_of_the_table(stage):
    run = lab.replay()
    data = run.data
    at = data["figures"].index
    shown = {"K": "retention_visible", "K+named": "retention_recoverable", "L": "retention_lines", "P": "retention_passages"}
    whole = {"requests": "requests", "peak": "peak", "over": "over_budget", "passes": "passes", "breaks": "prefix_breaks", "again": "refetches"}
    table = lab.rows(run.stdout)
    assert [row["policy"] for row in table] == data["policies"] == lab.POLICIES.split(",")
    page, _ = opened(stage, "replay")
    body = page.get_by_role("region", name="The table of all figures").locator("tbody tr")
    heads = page.get_by_role("region", name="The table of all figures").locator("thead th").all_inner_texts()
    for i, row in enumerate(table):
        figures = data["total"][i]
        for head, key in shown.items():
            assert f"{figures[at(key)]:.4f}" == row[head], (row, head)
        for head, key in whole.items():
            assert str(figures[at(key)]) == row[head], (row, head)
        assert f"{figures[at('cost')] / 1e6:.2f}" == row["cost"]
        # Five dollars for a million, as config/models.toml has it for the model of the demo's session.
        assert abs(figures[at("usd")] - figures[at("cost")] * 5e-6) < 1e-9
        cells = dict(zip(heads, body.nth(i).locator("td").all_inner_texts(), strict=True))
        assert cells["policy"] == row["policy"]
        assert cells["cost, $"] == f"${figures[at('usd')]:.2f}"
        assert (cells["K"], cells["L"], cells["P"]) == (row["K"], row["L"], row["P"])
        assert cells["passes"].replace(",", "") == row["passes"]
        assert cells["cost, units"] in (f"{row['cost']}M", f"{figures[at('cost')] / 1000:.0f}k")
    expect(page.locator(".figs.lab")).to_contain_text("$")
    expect(page.locator(".figs.lab")).to_contain_text("units")
    expect(page.get_by_text("$5.00 for a million (claude-opus-4-5-20251101)")).to_be_visible()


def test_the_figures_of_tune_are_those_of_the_table(stage):
    run = lab.tune()
    table = [line.removeprefix("→").removeprefix("*").split() for line in run.stdout.split("\n\n")[0].splitlines()[1:]]
    settings = run.data["settings"]
    assert len(table) == len(settings) == 9
    page, _ = opened(stage, "tune")
    body = page.get_by_role("region", name="The table of all figures").locator("tbody tr")
    maps = page.locator(".map")
    for i, (cells, setting) in enumerate(zip(table, settings, strict=True)):
        budget, floor, cost, ratio = cells[:4]
        assert (budget, floor) == (str(setting["budget"]), str(setting["floor"]))
        assert f"{setting['cost'] / 1e6:.2f}" == cost
        assert f"{setting['cost'] / run.data['untouched']['cost']:.3f}" == ratio
        assert cells[9] == f"{setting['retention_visible']:.4f}"
        expect(body.nth(i)).to_contain_text(f"{int(budget):,}, {floor}")
        expect(body.nth(i)).to_contain_text(f"${setting['usd']:.2f}")
        expect(body.nth(i)).to_contain_text(f"{setting['retention_visible']:.4f}")
    expect(maps).to_have_count(5)
    for one in maps.all():
        expect(one.locator("td.cell")).to_have_count(9)
        expect(one.locator("td.take")).to_have_count(1)
    take = run.data["recommended"]
    expect(page.locator(".figs.lab .fig").first).to_contain_text(f"{take['budget']:,}")
    lines = page.locator(".choice pre").inner_text()
    assert lines.strip() == run.stdout[run.stdout.index("[budget]") :].strip()


def test_without_a_price_there_are_units_and_the_reason(stage):
    page, _ = opened(stage, "several")
    expect(page.get_by_text("the price of a-model-that-nobody-sells is not known")).to_be_visible()
    row = page.get_by_role("region", name="The table of all figures").locator("tbody tr").nth(0)
    assert row.locator("td").nth(1).inner_text() == "–"
    assert "$" not in page.locator(".figs.lab").inner_text()
    # One session alone has its dollars.
    page.get_by_role("button", name="The one below").click()
    expect(page.locator(".plane text", has_text="cost in dollars")).to_have_count(1)
    page, _ = opened(stage, "idle")
    expect(page.get_by_text("1 session names no model")).to_be_visible()
    expect(page.get_by_text("stay with the defaults")).to_be_visible()
    expect(page.locator("td.take")).to_have_count(0)


def test_several_budgets_have_a_point_each(stage):
    page, _ = opened(stage, "several")
    data = lab.several().data
    assert page.locator(".plane circle.point").count() == 1 + 2 * 2
    cost = data["figures"].index("cost")
    for policy in range(3):
        each = [rows[policy][cost] for rows in data["by_budget"]]
        assert abs(sum(each) - data["total"][policy][cost]) < 1e-3
    page.get_by_role("combobox", name="budget").select_option(label="40,000")
    expect(page.locator(".chart text", has_text="budget 40k")).to_have_count(1)
    page.get_by_role("button", name="a short one").click()
    expect(page.get_by_role("slider", name="Tokens by request of a short one")).to_be_visible()


def test_charts_and_tables_by_keys(stage):
    page, _ = opened(stage, "replay")
    plane = page.get_by_role("listbox", name="Cost against what was kept, policy by policy")
    plane.focus()
    page.keyboard.press("End")
    expect(plane.get_by_role("option", selected=True)).to_contain_text("none")
    expect(page.locator(".tip")).to_contain_text("none")
    page.keyboard.press("Home")
    expect(plane.get_by_role("option", selected=True)).not_to_contain_text("none")
    page.keyboard.press("Escape")
    expect(page.locator(".tip")).to_have_count(0)
    chart = page.get_by_role("slider", name="Tokens by request")
    chart.focus()
    page.keyboard.press("Home")
    expect(chart).to_have_attribute("aria-valuenow", "1")
    page.keyboard.press("ArrowRight")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"^request 2: whole [\d,]+;.* cwl [\d,]+"))
    expect(page.locator(".tip")).to_contain_text("Request 2")
    page.get_by_role("group", name="Policies shown").get_by_role("button", name="oldest-turn").press("Enter")
    expect(page.locator(".chart text", has_text="oldest-turn").first).to_be_visible()
    table = page.get_by_role("region", name="The table of all figures")
    table.get_by_role("button", name="K", exact=True).press("Enter")
    expect(table.get_by_role("columnheader", name="K", exact=True)).to_have_attribute("aria-sort", "descending")
    expect(table.locator("tbody tr").first).to_contain_text("none")


def test_each_charts_facts_are_in_a_table(stage):
    page, _ = opened(stage, "replay")
    data = lab.replay().data
    page.get_by_text("Cost and what was kept as a table").click()
    facts = page.get_by_role("region", name="Cost and what was kept", exact=True)
    expect(facts.locator("tbody tr")).to_have_count(len(data["policies"]))
    page.get_by_text("Tokens of each request as a table").click()
    facts = page.get_by_role("region", name="Tokens of each request", exact=True)
    expect(facts.locator("tbody tr")).to_have_count(data["sessions"][0]["requests"])
    page, _ = opened(stage, "tune")
    page.get_by_text("Cost and what was kept as a table").click()
    facts = page.get_by_role("region", name="Cost and what was kept", exact=True)
    expect(facts.locator("tbody tr")).to_have_count(9)


@pytest.mark.parametrize("name", RUNS)
def test_no_word_names_a_colour(stage, name):
    page, _ = opened(stage, name, theme="dark")
    said = page.evaluate("document.body.innerText + [...document.querySelectorAll('[title], [aria-label]')].map(e => `${e.title} ${e.ariaLabel}`).join(' ')")
    assert re.findall(COLOURS, said, re.IGNORECASE) == []


def test_where_no_scripts_run_the_page_says_where_the_figures_are(stage):
    page = stage.open(lab.replay().url, java_script_enabled=False)
    expect(page.get_by_text("The same figures are in")).to_be_visible()
    page, _ = opened(stage, "replay")
    expect(page.get_by_text("The same figures are in")).to_have_count(0)


def test_recorded_traces(stage):
    traces = sorted(lab.TRACES.glob("*.jsonl.zst"), key=lambda file: file.stat().st_size)[:12]
    if not traces:
        pytest.skip(f"the recorded traces are not in {lab.TRACES}")
    run = lab.Run("traces", "replay", *traces, "--policies", "none,recency,cwl", "--budget", "8000")
    for size in SIZES:
        page = stage.open(run.url, SIZES[size])
        expect(page.get_by_role("region", name="The table of sessions").locator("tbody tr")).to_have_count(len(run.data["sessions"]))
        assert page.evaluate(CROPPED) == []
        assert overlapping(page.evaluate(BOXES, ".plane text.name")) == []
        keep(page, f"lab-traces-light-{size}", whole=True)


@pytest.mark.parametrize("command", [["replay", "--policies", "none,cwl"], ["tune", "--floors", "auto"]], ids=["replay", "tune"])
def test_progress_is_told_to_a_terminal_and_to_nobody_else(command):
    asked = [lab.BINARY, command[0], lab.DEMO, lab.short_session(), *command[1:]]
    piped = subprocess.run(asked, capture_output=True, text=True, timeout=lab.PATIENCE)
    assert piped.stderr == ""
    ours, theirs = pty.openpty()
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        told = b""
        while part := read(ours):
            told += part
        stdout = process.stdout.read()
    os.close(ours)
    lines = [line.strip() for line in told.decode().split("\r\x1b[2K")]
    assert "░░░░░░░░░░ 0/2 sessions" in lines
    assert any(re.fullmatch(r"[█░]{10} [01]/2 sessions, playing \S.{0,15} \d+ %(, about \d+ (s|min) left)?", line) for line in lines), lines
    assert "██████████ 2/2 sessions" in lines
    assert lines[-1] == "", "the line is taken away"
    # A policy's time is measured anew in each run. It is the last column of replay's table, which is as wide as the
    # longest time.
    timeless = lambda text: [re.sub(r"\s+(µs|\d+)$", "", line) for line in text.splitlines()]  # noqa: E731
    assert timeless(stdout) == timeless(piped.stdout)


def read(terminal):
    """What stands in a terminal; nothing at its end, which Linux tells as an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_a_tip_is_whole_on_a_phone(stage):
    page, _ = opened(stage, "replay", "phone")
    plane = page.get_by_role("listbox", name="Cost against what was kept, policy by policy")
    plane.scroll_into_view_if_needed()
    plane.focus()
    page.keyboard.press("Home")
    seen = []
    for _ in range(page.locator(".plane circle.point").count()):
        box = page.locator(".tip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"], box
        seen.append(page.locator(".tip b").first.inner_text())
        page.keyboard.press("ArrowRight")
    assert {"none", "cwl-paper"} <= set(seen)

"""What the console is made of: nothing from elsewhere, nothing inline, nothing unread."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "console"
MODULES = Path(os.environ.get("PLIMSOLL_CONSOLE_MODULES", Path(__file__).parent / "node_modules"))
VENDORED = json.loads((PAGE / "vendor/vendored.json").read_text())["files"]
OWN = sorted([*PAGE.glob("*.js"), *PAGE.glob("*.css")])


@pytest.mark.parametrize("entry", VENDORED, ids=lambda entry: entry["file"])
def test_a_vendored_file_is_that_of_its_package(entry):
    held = (PAGE / "vendor" / entry["file"]).read_bytes()
    assert hashlib.sha256(held).hexdigest() == entry["sha256"]
    package = MODULES / entry["package"]
    if not package.exists():
        pytest.skip("npm's packages are not installed")
    assert json.loads((package / "package.json").read_text())["version"] == entry["version"]
    text = (package / entry["path"]).read_text()
    for was, becomes in entry["change"]:
        assert was in text
        text = text.replace(was, becomes)
    assert held.decode() == text


def test_every_vendored_file_is_listed_with_its_licence():
    names = {entry["file"] for entry in VENDORED}
    assert names | {"vendored.json"} == {path.name for path in (PAGE / "vendor").iterdir()}
    for package in {entry["package"] for entry in VENDORED}:
        assert f"LICENSE.{package}" in names


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_a_file_says_what_it_owns_and_is_short(path):
    text = path.read_text()
    head = text[:700]
    assert head.startswith(("// ", "/* ")), "it begins with a comment"
    assert re.search(r"\bOwns?\b", head) and re.search(r"\bNever\b", head)
    assert len(text.splitlines()) <= 600


@pytest.mark.parametrize("path", [*OWN, PAGE / "index.html"], ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path):
    # The line for agents to paste names the address at which they connect.
    found = re.findall(r"https?://[^\s\"'`)]+", path.read_text())
    assert [url for url in found if not url.startswith("http://127.0.0.1")] == []


def test_the_page_has_nothing_inline():
    page = (PAGE / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
    assert re.findall(r"<script[^>]*>(.+?)</script>", page) == []

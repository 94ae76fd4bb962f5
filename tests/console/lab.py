"""Runs of `plimsoll replay` and `tune` on recorded sessions, and the pages that they write.

Owns the sessions that are played: that of the demo, a shorter copy of it that names a model without a price,
and where the recorded traces of the project are at hand, two of these. Never opens a page.
"""

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BINARY = Path(os.environ.get("PLIMSOLL_BIN", ROOT / "target/debug/plimsoll"))
DEMO = ROOT / "assets/demo/session.jsonl.zst"
TRACES = ROOT.parent / "shared/traces/sessions"
PATIENCE = 600
POLICIES = "none,recency,oldest-turn,tool-mask-prune,three-tier,compaction,cwl-paper,cwl,repeat+cwl"


@functools.cache
def place():
    """A directory that outlives a test: a run is made once for all of them."""
    return Path(tempfile.mkdtemp(prefix="plimsoll-lab-"))


def short_session(model="a-model-that-nobody-sells"):
    """The start of the demo's session as plain lines, as if another model had answered it."""
    text = subprocess.run(["zstd", "-dcq", DEMO], capture_output=True, check=True, text=True).stdout
    meta, *messages = text.splitlines()
    meta = json.loads(meta)
    meta["_meta"] |= {"id": "a short one", "model": model}
    file = place() / f"{model}.jsonl"
    file.write_text("\n".join([json.dumps(meta), *messages[:121]]) + "\n")
    return file


class Run:
    """What a command printed, and the page that it wrote."""

    def __init__(self, name, *arguments):
        self.file = place() / f"{name}.html"
        command = [BINARY, *map(str, arguments), "--html", self.file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        self.stdout, self.stderr = done.stdout, done.stderr
        self.url = self.file.as_uri()
        self.page = self.file.read_text()
        self.data = json.loads(self.page.split('id="data">')[1].split("</script>")[0])


@functools.cache
def replay():
    """One session at one budget, and many policies."""
    return Run("replay", "replay", DEMO, "--policies", POLICIES, "--budget", "40000")


@functools.cache
def several():
    """Two sessions at two budgets, one of them without a price."""
    arguments = ("--policies", "none,recency,cwl", "--budget", "24k,40k")
    return Run("several", "replay", DEMO, short_session(), *arguments)


@functools.cache
def tune():
    """One session at three budgets and three floors."""
    return Run("tune", "tune", DEMO, "--budgets", "24k,40k,60k", "--floors", "auto,0.5,0.8")


@functools.cache
def idle():
    """A sweep in which nothing was ever evicted, so that nothing is recommended."""
    return Run("idle", "tune", short_session("recorded"), "--budgets", "900k", "--floors", "auto")


def rows(stdout):
    """The table that a command prints: for each row its cells by the names of the columns."""
    lines = stdout.split("\n\n")[0].rstrip().splitlines()
    heads = cells(lines[0])
    return [dict(zip(heads, cells(line), strict=True)) for line in lines[1:]]


def cells(line):
    """The cells of a line, which two spaces part at least; those of the first column may be empty."""
    parts = [part.strip() for part in line.replace("×", "x").split("  ")]
    return [part for part in parts if part]

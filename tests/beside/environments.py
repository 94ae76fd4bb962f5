"""Virtual environments: one for this program, and one for each rival and each set, since their needs conflict.

`requirements.txt` has the pins, each behind a line that names the environment. Owns that reading, and where the
environments are: under `~/.cache/plimsoll-beside`, by name and pins. An environment that is there is used as it is.
"""

import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

PINS = pathlib.Path(__file__).with_name("requirements.txt")
ROOT = pathlib.Path.home() / ".cache/plimsoll-beside"
ALONE = ", without its dependencies"


class Missing(Exception):
    """A package can't be had."""


@functools.cache
def pins():
    """Of each environment: what is installed with what it needs, and what is installed alone."""
    found, name, alone = {}, None, False
    for line in PINS.read_text().splitlines():
        line = line.strip()
        if line.startswith("# "):
            alone = line.endswith(ALONE)
            name = line[2:].removesuffix(ALONE)
        elif line:
            found.setdefault(name, ([], []))[alone].append(line)
    return found


def version(name):
    """The pin that an environment is there for: its first."""
    whole, alone = pins()[name]
    return (alone + whole)[0]


def environment(name):
    """The environment's directory; it is made if it is not there."""
    whole, alone = pins()[name]
    digest = hashlib.sha256(repr((whole, alone, sys.version_info[:2])).encode()).hexdigest()[:8]
    place = ROOT / f"{name}-{digest}"
    if (place / "ready").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    print(f"making the environment of {name}", file=sys.stderr, flush=True)
    run([sys.executable, "-m", "venv", str(place)])
    pip = [str(place / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if alone:
        run([*pip, "--no-deps", *alone])
    if whole:
        run([*pip, *whole])
    (place / "ready").touch()
    return place


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing((done.stderr.strip().splitlines() or ["no message"])[-1])


def packages(name):
    """Where an environment keeps its packages."""
    return next((environment(name) / "lib").glob("python3*/site-packages"))


def enter():
    """Runs this program again in its own environment, unless it is there already."""
    place = environment("harness")
    if pathlib.Path(sys.prefix).resolve() != place.resolve():
        os.execv(place / "bin/python", [str(place / "bin/python"), *sys.argv])

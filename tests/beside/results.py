"""What was played, one JSON object a line, so that nothing is played twice.

A line's key is everything that it depends on: the session, the arm with its version and settings, the rules of the
caches, the model's name, and the program that measures. Owns that file. Never adds anything up.
"""

import functools
import hashlib
import json
import pathlib

MEASURES = ("cache", "checker", "marks", "play", "provider", "sources", "tokens", "views")


@functools.cache
def program():
    """What measures, as a digest."""
    folder = pathlib.Path(__file__).parent
    digest = hashlib.sha256()
    for name in MEASURES:
        digest.update((folder / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


def key(kind, session, arm, vendors, model, budget):
    """The name of a result."""
    rules = {name: (one["cache"], one["least"]) for name, one in vendors.items()}
    told = [program(), kind, session["name"], session["digest"], arm.name, arm.settings(), rules, model, budget]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:24]


class Results:
    """The lines of a file, and where new ones go."""

    def __init__(self, path):
        self.path = path
        self.known = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    one = json.loads(line)
                except ValueError:  # The last line of a run that was stopped.
                    continue
                self.known[one["key"]] = one

    def add(self, name, **values):
        """A failure is written down, too, and played again by the next run."""
        line = {"key": name, **values}
        self.known[name] = line
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def done(self, name):
        return name in self.known and "error" not in self.known[name]

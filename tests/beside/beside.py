"""Plimsoll beside other ways to keep a context small: the same sessions through all of them, as tables.

    python tests/beside/beside.py TRACES --plimsoll BIN --out DIRECTORY
        [--sets recorded,bfcl,tau2] [--only "none,plimsoll 80k"] [--limit 5] [--document docs/evidence/beside.md]

Plays recorded sessions through each arm to a scripted provider, and measures what the provider is sent: tokens,
money by three vendors' prices and caches, what is in view of that which the next call needs, requests that would be
refused, and time. What was played stands in --out/results.jsonl and is not played again. Makes its virtual
environments under ~/.cache/plimsoll-beside. With --only or --limit it prints the tables and leaves the document as it
is. Owns the order of the play and the document's tables; `play.py` measures, `arms.py` has the arms, `report.py` adds
up.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
import traceback

import environments

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "gpt-6.1-sol"
TRIES = 3
LENGTHS = (100_000, 150_000)
MONEY = ["OpenAI, %", "Anthropic, %", "DeepSeek, %"]
HELD = ["over", "largest"]
VALUES = [*MONEY, "arguments in view", "or to be called back", *HELD]
SETS = {
    "recorded": {"budgets": [80_000, 60_000, 40_000], "told": 60_000, "least": 80_000,
                 "columns": ["M tokens", *MONEY, "K", "user texts", "breaks", *HELD, "ms p50"]},
    "bfcl": {"budgets": [8_000], "least": 8_000, "script": "bfcl.py", "columns": VALUES},
    "tau2": {"budgets": [8_000], "least": 0, "script": "tau.py", "columns": VALUES},
}


def loaded(name, args, sizer):
    """The sessions of a set, the shortest first."""
    import sessions

    if name == "recorded":
        return sessions.recorded(args.traces, sizer, SETS[name]["least"])
    made = args.out / f"{name}-{environments.version(name)}.jsonl"
    if not made.exists():
        python = environments.environment(name) / "bin/python"
        done = subprocess.run([python, HERE / SETS[name]["script"]], capture_output=True, text=True, check=True)
        made.write_text(done.stdout)
    found = []
    for line in made.read_text().splitlines():
        one = json.loads(line)
        messages = [sessions.plain(message) for message in one["messages"]]
        size = sizer.request(messages, one["tools"])
        if size >= SETS[name]["least"]:
            found.append((size, sessions.session(one["name"], messages, one["tools"])))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


class Runner:
    """Plays the sessions of a set through its arms."""

    def __init__(self, name, args, provider, vendors, results):
        import arms

        self.name, self.args, self.provider, self.vendors, self.results = name, args, provider, vendors, results
        self.arms = [one for one in arms.arms(SETS[name]["budgets"], args.plimsoll) if chosen(one, args.only)]
        self.running, self.lost = set(), {}
        self.sessions = loaded(name, args, provider.sizer)[:args.limit]

    def budget(self, arm):
        return arm.budget or max(SETS[self.name]["budgets"])

    def key(self, session, arm):
        import results

        return results.key(self.name, session, arm, self.vendors, MODEL, self.budget(arm))

    def run(self):
        """Every session goes through all arms before the next one begins."""
        began = time.monotonic()
        try:
            for number, session in enumerate(self.sessions, 1):
                for arm in self.arms:
                    self.once(session, arm)
                print(f"{self.name}: {number} of {len(self.sessions)}, {session['name']}, "
                      f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        finally:
            for arm in self.arms:
                arm.stop()

    def once(self, session, arm):
        """Plays a session through an arm, unless that was done. An arm that fails is stopped, and begun anew for the
        next session; after a few in a row it is left."""
        import play

        key = self.key(session, arm)
        if self.results.done(key) or self.lost.get(arm.name, 0) >= TRIES:
            return
        try:
            if arm.name not in self.running:
                arm.start(self.provider, self.args.out)
                self.running.add(arm.name)
            found = play.play(session, arm, self.provider, self.vendors, self.budget(arm), MODEL)
            self.results.add(key, set=self.name, session=session["name"], arm=arm.name, **found)
            self.lost[arm.name] = 0
        except Exception as failure:
            if not isinstance(failure, (play.Failed, environments.Missing)):
                traceback.print_exc()
            arm.stop()
            self.running.discard(arm.name)
            self.lost[arm.name] = self.lost.get(arm.name, 0) + 1
            self.results.add(key, set=self.name, session=session["name"], arm=arm.name,
                             error=f"{failure}" or type(failure).__name__)

    def sums(self):
        """Each arm over the sessions."""
        import report

        known = self.results.known
        rows = {arm.name: {one["name"]: known[self.key(one, arm)] for one in self.sessions
                           if self.key(one, arm) in known} for arm in self.arms}
        base = {name: one for name, one in rows.get("none", {}).items() if "error" not in one}
        return [report.Sum(arm, rows[arm.name], base, self.vendors) for arm in self.arms]


def chosen(arm, only):
    return not only or arm.name in only or arm.kind in only or arm.kind == "none"


def drawn(name, runner):
    """The tables of a set."""
    import report

    every, columns, told = runner.sums(), SETS[name]["columns"], SETS[name].get("told")
    sums = [one for one in every if one.arm.budget is None or one.arm.budget != told]
    parts = [report.table(["arm", *columns], [report.row(one, columns) for one in sums]), report.faults(sums)]
    if name == "recorded":
        parts.insert(1, "By how long sessions grow:\n\n" + report.lengths(sums, LENGTHS))
        parts.insert(2, report.losses(sums))
        parts.insert(3, report.told(every, told))
    return "\n\n".join(parts)


def circumstances(args, runners):
    """When, where and with what."""
    described = subprocess.run([args.plimsoll, "--version"], capture_output=True, text=True).stdout.strip()
    pins = ", ".join(environments.version(name) for name in ("headroom", "lean-ctx", "bfcl", "tau2"))
    sets = ", ".join(f"{len(one.sessions)} sessions of `{one.name}`" for one in runners)
    models = ", ".join(f"{vendor}'s {one['model']}" for vendor, one in runners[0].vendors.items())
    ways = {one.kind: "; ".join(filter(None, [one.why, one.notes(args.out)])) for one in runners[0].arms}
    ways = "\n".join(f"- `{kind}`: {why}." for kind, why in ways.items())
    return (f"Played on {datetime.date.today()}, on {os.cpu_count()} cores ({processor()}), with {described}, {pins}. "
            f"Prices and caches are those of {models} in `config/models.toml`. {sets}.\n\n{ways}")


def processor():
    """The machine's processor by name."""
    known = pathlib.Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or "unknown"])[0]


def between(text, name, new):
    """A document whose part between two markers is new."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{new}\n{end}{rest.split(end)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--plimsoll", type=pathlib.Path, default=HERE.parents[1] / "target/release/plimsoll")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "target/beside")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of arms, by commas; `none` always")
    parser.add_argument("--limit", type=int, help="so many sessions of each set, the shortest first")
    parser.add_argument("--document", type=pathlib.Path, default=HERE.parents[1] / "docs/evidence/beside.md")
    environments.enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    args = parser.parse_args()
    args.out, args.plimsoll = args.out.resolve(), args.plimsoll.resolve()
    args.out.mkdir(parents=True, exist_ok=True)

    import absent
    import cache
    import provider
    import results
    import tokens

    served = provider.Provider(tokens.Sizer(tokens.o200k()))
    kept = results.Results(args.out / "results.jsonl")
    runners = []
    for name in args.sets.split(","):
        try:
            runners.append(Runner(name, args, served, cache.table(), kept))
        except (environments.Missing, subprocess.CalledProcessError) as failure:
            print(f"{name} can't be had: {failure}", file=sys.stderr)
            continue
        runners[-1].run()
    tables = {one.name: drawn(one.name, one) for one in runners}
    tables["circumstances"] = circumstances(args, runners)
    tables["absent"] = absent.told()
    for name, text in tables.items():
        print(f"\n## {name}\n\n{text}")
    if not args.only and not args.limit and args.document.exists():
        text = args.document.read_text()
        for name, new in tables.items():
            text = between(text, name, new)
        args.document.write_text(text)


if __name__ == "__main__":
    main()

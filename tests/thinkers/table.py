"""What passes cost where models think: recorded sessions under each provider's rule, as one table.

    python table.py --plimsoll target/release/plimsoll TRACES [TRACES …]
        [--rules none,calls] [--sizes 0,250,800,2500] [--budgets 40000,80000] [--out DIRECTORY]

Plays each rule at each size of thoughts by `plimsoll replay --think --family`, and keeps what that wrote in --out:
what was played is not played again. "a token" is how many passes there are for each token that came in behind the
first budget of a session, beside those of the same sessions without thoughts; "too deep" counts passes that end below their
floor by more than their last step. Then lists the requests over budget and why. Owns the choice of what is played and what
is told; `plimsoll replay` measures it.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

HEAD = ("rule", "thought", "budget", "requests", "over", "passes", "a token", "too deep", "above floor", "came in", "cost", "none",
        "of that output", "K", "L", "P", "mean view")


def rules(plimsoll):
    """The rules that `--family` knows."""
    told = subprocess.run([plimsoll, "replay", "--family", "?"], capture_output=True, text=True).stderr
    found = re.search(r"\[possible values: ([^\]]+)\]", told)
    if not found:
        sys.exit(f"{plimsoll} names no rules: {told}")
    return found.group(1).split(", ")


def played(args, rule, size):
    """The report of all sessions under a rule, from a file if they were played before."""
    file = args.out / f"{rule}-{size}.json"
    command = [args.plimsoll, "replay", *args.traces, "--policies", f"none,{args.policy}"]
    command += ["--budget", args.budgets, "--think", size, "--family", rule, *args.flags]
    key = json.dumps(command)
    known = file.with_suffix(".command")
    if not (file.exists() and known.exists() and known.read_text() == key):
        part = file.with_suffix(".part")
        subprocess.run([*command, "--json", part], check=True, stdout=subprocess.DEVNULL)
        part.rename(file)
        known.write_text(key)
    return json.loads(file.read_text())


def share(plays, name):
    kept = sum(play[name]["kept"] for play in plays)
    needed = sum(play[name]["needed"] for play in plays)
    return f"{kept / needed:.4f}" if needed else "–"


def millions(tokens):
    return f"{tokens / 1e6:.2f}"


def rate(plays, budget):
    """Passes for each token that came in when the first budget was full."""
    came = sum(max(0, play["came_in"] - budget) for play in plays)
    return sum(len(play["passes"]) for play in plays) / came if came else 0


def row(rule, size, budget, plays, untouched, plain):
    """The sum over the sessions; `plain` is their rate of passes without thoughts."""
    passes = [one for play in plays for one in play["passes"]]
    deep = sum(one["after"] + one["last"] < one["floor"] for one in passes)
    own = rate(plays, budget)
    total = {name: sum(play[name] for play in plays)
             for name in ("requests", "extra_requests", "tokens_sent", "came_in", "cost", "cost_of_thoughts")}
    above = sum(one["after"] > one["floor"] for one in passes)
    sent = total["tokens_sent"] / max(1, total["requests"] + total["extra_requests"])
    return (rule, size, budget, total["requests"], sum(len(play["over"]) for play in plays), len(passes),
            f"{own / plain:.2f}" if plain else "–", deep, above,
            millions(total["came_in"]), millions(total["cost"]), millions(sum(play["cost"] for play in untouched)),
            millions(total["cost_of_thoughts"]), share(plays, "anchors"), share(plays, "lines"),
            share(plays, "passages"), f"{sent:.0f}")


def why(over, budget):
    """What kept a request over budget."""
    if over["kept_over"]:
        return "tools, system and user text and the newest answer with its results are over budget alone"
    if over["sent"] - over["thoughts"] <= budget:
        return "it would fit without its thoughts"
    return "something else stayed"


def table(head, rows):
    """A table in Markdown."""
    out = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(out + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--plimsoll", default="target/release/plimsoll")
    parser.add_argument("--rules", help="of --family, by commas; all of them if none is named")
    parser.add_argument("--sizes", default="0,250,800,2500")
    parser.add_argument("--budgets", default="40000,80000")
    parser.add_argument("--policy", default="cwl")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("target/thinkers"))
    parser.add_argument("--flags", type=str.split, default=[], help="more flags for replay, in one argument")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows, listed = [], []
    chosen = args.rules.split(",") if args.rules else rules(args.plimsoll)
    plain = {}
    for rule in chosen:
        for size in args.sizes.split(","):
            print(f"{rule}, {size} tokens", file=sys.stderr)
            sessions = played(args, rule, size)["sessions"]
            for budget in map(int, args.budgets.split(",")):
                def of(policy):
                    return [play for session in sessions for play in session["plays"]
                            if play["policy"] == policy and play["budget"] == budget]
                if size == args.sizes.split(",")[0]:
                    plain[budget] = rate(of(args.policy), budget)
                rows.append(row(rule, size, budget, of(args.policy), of("none"), plain[budget]))
                for session in sessions:
                    for play in session["plays"]:
                        if play["policy"] == args.policy and play["budget"] == budget:
                            listed += [(rule, size, budget, session["name"], one["request"], one["sent"],
                                        one["kept"], one["thoughts"], why(one, budget)) for one in play["over"]]
    print(table(HEAD, rows))
    print(f"\n{len(listed)} requests over budget" + (":\n" if listed else "."))
    if listed:
        print(table(("rule", "thought", "budget", "session", "request", "sent", "kept", "thoughts", "why"), listed))


if __name__ == "__main__":
    main()

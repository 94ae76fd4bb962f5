"""Recorded sessions through LiteLLM's real guardrail `headroom`: without it, before headroom-ai, and before Plimsoll's
`[compress]` listener, as a table.

    python3 tests/gateway/gateway.py TRACES --plimsoll BIN [--document docs/evidence/beside.md]

Each session goes through LiteLLM's proxy to a scripted provider, whose cache knows exact prefixes. The table says what
of the prompts that cache held and what all cost. Makes its environments under ~/.cache/plimsoll-beside. Owns the
processes and the play; what is measured, and by which rules, is that of `tests/beside`. Prints why and ends without an
error where the sessions or the packages can't be had.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "beside"))

import environments  # noqa: E402

# The last one that sends no session with its rows, and the newest.
VERSIONS = ("1.108.7", "1.110.2")
MODEL = "gpt-6.1-sol"
KEY = "0123456789abcdef0123456789abcdef"
# Of an agent with few turns, of one with many, and of one whose user says much.
SESSIONS = ("oh-my-posh-675f14620a", "context-evaluator-256a4f9afd", "recovery-bench-mini-3cd59b4e51")
BUDGETS = (20_000, 40_000)


def litellm(version):
    """The environment of a version of LiteLLM's proxy; it is made if it is not there."""
    pins = HERE / "requirements.txt"
    digest = hashlib.sha256(pins.read_bytes() + version.encode() + repr(sys.version_info[:2]).encode()).hexdigest()[:8]
    place = environments.ROOT / f"litellm-{version}-{digest}"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        print(f"making the environment of LiteLLM {version}", file=sys.stderr, flush=True)
        environments.run([sys.executable, "-m", "venv", str(place)])
        environments.run([str(place / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                          "--no-deps", "-r", str(pins), f"litellm=={version}"])
        (place / "ready").touch()
    return place


def processes():
    """The kinds of processes, on those of `tests/beside`, which this program can load in its environment alone."""
    import arms

    class Listener(arms.Proxy):
        """Plimsoll's listener for gateways. LiteLLM's guardrail sends no header of its own, so a key names its tenant."""

        def __init__(self, binary, tokens):
            super().__init__()
            self.binary, self.tokens = binary, tokens
            self.kind = f"plimsoll {tokens:,}"

        def command(self, upstream, home):
            return [str(self.binary), "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data",
                    str(home / "data"), "--upstream", f"http://127.0.0.1:{upstream}/v1", "--log", "warn"], {
                "PLIMSOLL__COMPRESS__LISTEN": f"127.0.0.1:{self.port}", "PLIMSOLL__COMPRESS__KEYS": f"litellm={KEY}",
                "PLIMSOLL__COMPRESS__TOKENS": str(self.tokens)}

    class LiteLLM(arms.Proxy):
        """LiteLLM's proxy with a guardrail for each service, which a request chooses by name."""

        def __init__(self, version, services):
            super().__init__()
            self.kind, self.version, self.services = f"litellm {version}", version, services

        def command(self, upstream, home):
            rails = [{"guardrail_name": one.kind, "litellm_params": {
                "guardrail": "headroom", "mode": "pre_call", "api_base": f"http://127.0.0.1:{one.port}",
                "api_key": KEY, "default_on": False}} for one in self.services]
            model = {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "sk-none"}
            settings = {"model_list": [{"model_name": MODEL, "litellm_params": model}], "guardrails": rails,
                        "litellm_settings": {"telemetry": False, "num_retries": 0},
                        "general_settings": {"master_key": "sk-none"}}
            # JSON is YAML.
            (home / "config.yaml").write_text(json.dumps(settings))
            place = litellm(self.version)
            return [str(place / "bin/litellm"), "--config", "config.yaml", "--host", "127.0.0.1", "--port",
                    str(self.port)], {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DISABLE_ADMIN_UI": "True"}

        def wait(self, home):
            super().wait(home)
            until = time.monotonic() + arms.PATIENCE
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/liveliness", timeout=5).close()
                    return
                except OSError:
                    if time.monotonic() > until:
                        raise arms.Failed("LiteLLM does not come up") from None
                    time.sleep(0.5)

    return Listener, LiteLLM, arms.Headroom


class Sent:
    """What the provider was sent in one session."""

    def __init__(self, vendors):
        import cache

        self.caches = {name: cache.Cache(one["cache"], one["least"]) for name, one in vendors.items()}
        self.billed = {name: [0, 0, 0] for name in vendors}
        self.tokens = self.output = self.breaks = self.passes = self.unexplained = self.others = 0
        self.keys, self.gone, self.tools = [], [], None

    def add(self, hop, history, sizer):
        """Adds a request. `history` is what the client sent."""
        self.tokens += hop.tokens
        self.output += sizer.said(hop.answer)
        keys = [unit.key for unit in hop.units]
        from tokens import identity
        pairs = enumerate(zip(history, hop.messages, strict=True))
        gone = [place for place, (sent, came) in pairs if identity(sent) != identity(came)]
        self.others += any(history[place]["role"] != "tool" for place in gone)
        broken = self.keys != keys[:len(self.keys)]
        # A pass replaces more; the first one brings the tool that retrieves.
        passed = len(gone) > len(self.gone)
        self.breaks += broken
        self.passes += passed
        self.unexplained += broken and not passed
        self.keys, self.gone = keys, gone
        for name, one in self.caches.items():
            self.billed[name] = [a + b for a, b in zip(self.billed[name], one.ask(hop.units))]


def body(texts, tools, rails):
    """A request of the agent's; `rails` are the guardrails that it asks for."""
    rest = json.dumps({"model": MODEL, **({"tools": tools} if tools else {}), "guardrails": rails})
    return f'{rest[:-1]}, "messages": [{",".join(texts)}]}}'.encode()


def played(session, gateway, rail, provider, vendors):
    """One session through LiteLLM."""
    import play

    sent = Sent(vendors)
    speaker = play.Speaker(gateway.port, {"x-litellm-session-id": f"{session['name']}-{rail or 'none'}"})
    messages, texts, done = session["messages"], [], 0
    for place, answer, _ in play.turns(messages):
        texts += [json.dumps(one, ensure_ascii=False) for one in messages[done:place]]
        done = place
        provider.expect(answer)
        status, _ = speaker.post(body(texts, session["tools"], [rail] if rail else []))
        if status != 200:
            raise play.Failed(f"{session['name']}: {status}")
        for hop in provider.hops:
            sent.add(hop, messages[:place], provider.sizer)
    speaker.connection.close()
    return sent


def row(name, all_sent, base, vendors):
    """A line of the table. `base` is what the same sessions came to without a guardrail."""
    import cache

    def cost(all_sent, vendor):
        return sum(cache.dollars(vendors[vendor]["usd"], *one.billed[vendor], one.output) for one in all_sent)

    def hits(vendor):
        read, written, plain = (sum(one.billed[vendor][kind] for one in all_sent) for kind in range(3))
        return f"{read / (read + written + plain) * 100:.1f}"

    def money(vendor):
        ours, theirs = cost(all_sent, vendor), cost(base, vendor)
        return f"${ours:.2f}" if all_sent is base else f"{ours / theirs * 100:.0f}"

    total = {field: sum(getattr(one, field) for one in all_sent) for field in ("tokens", "breaks", "passes", "unexplained", "others")}
    counts = [total[field] for field in ("breaks", "passes", "unexplained", "others")]
    return [name, f"{total['tokens'] / 1e6:.2f}", *map(hits, vendors), *map(money, vendors), *counts]


def table(args, sizer):
    """The lines of the table."""
    import cache
    import provider as providers
    import sessions

    Listener, LiteLLM, Headroom = processes()
    provider, vendors = providers.Provider(sizer), cache.table()
    services = [Headroom("token"), *(Listener(args.plimsoll, tokens) for tokens in BUDGETS)]
    services[0].kind = environments.version("headroom").replace("[proxy]==", " ")
    gateway = LiteLLM(args.version, services)
    recorded = []
    for name in SESSIONS:
        messages = sessions.read(args.traces / f"sessions/{name}.jsonl.zst")
        recorded.append(sessions.session(name, messages, sessions.tools_of(messages)))
    started, lines, base = [], [], None
    try:
        for one in [*services, gateway]:
            started.append(one)
            one.start(provider, args.out)
        for rail in [None, *(one.kind for one in services)]:
            all_sent = [played(one, gateway, rail, provider, vendors) for one in recorded]
            base = base or all_sent
            lines.append(row(rail or "none", all_sent, base, vendors))
            print(lines[-1], file=sys.stderr, flush=True)
    finally:
        for one in started:
            one.stop()
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--plimsoll", type=pathlib.Path, default=HERE.parents[1] / "target/debug/plimsoll")
    parser.add_argument("--version", default=VERSIONS[-1], choices=VERSIONS, help="of LiteLLM")
    parser.add_argument("--document", type=pathlib.Path, help="the page whose table is written")
    args = parser.parse_args()
    if not (args.traces / "sessions").is_dir():
        print(f"skipped: no recorded sessions in {args.traces}")
        return
    try:
        environments.enter()
        litellm(args.version)
    except environments.Missing as why:
        print(f"skipped: a package can't be had: {why}")
        return
    import beside
    import cache
    import report
    import tokens

    args.plimsoll = args.plimsoll.resolve()
    sizer, vendors = tokens.Sizer(tokens.o200k()), cache.table()
    with tempfile.TemporaryDirectory() as out:
        args.out = pathlib.Path(out)
        lines = table(args, sizer)
    head = ["guardrail", "M tokens", *(f"hits, {one}, %" for one in vendors), *(f"{one}, %" for one in vendors),
            "breaks", "passes", "unexplained", "user texts"]
    drawn = report.table(head, lines)
    print(drawn)
    if args.document:
        args.document.write_text(beside.between(args.document.read_text(), "gateway", drawn))


if __name__ == "__main__":
    main()

"""The arms: who stands between the agent and the provider, and how each is started.

An arm is started once for a whole set, and every session goes through all arms before the next one begins, so that
noise hits all alike. Owns commands, settings and what the table calls each. Never looks into a request.
"""

import functools
import hashlib
import os
import re
import shutil
import socket
import subprocess
import time

import environments
import views
from play import Failed, Speaker

PATIENCE = 120
THOUSAND = 1000


class Arm:
    """`none`, and the base of the others: the agent talks to the provider itself."""

    marked = False
    kind = "none"
    why = "the whole history each time"

    def __init__(self, budget=None):
        self.budget = budget
        self.process = None

    @property
    def name(self):
        return self.kind if self.budget is None else f"{self.kind} {self.budget // THOUSAND}k"

    def settings(self):
        """What a result depends on beside this program."""
        return {}

    def notes(self, out):
        """What came out about it while it was played."""
        return ""

    def start(self, provider, out):
        """Makes the arm ready."""

    def stop(self):
        """Ends what `start` began."""
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def view(self, sizer, budget):
        return None

    def speaker(self, provider, session, budget):
        return Speaker(provider.port, {})


class Local(Arm):
    """An agent that cuts its own history."""

    def speaker(self, provider, session, budget):
        return None


class Truncation(Local):
    kind = "truncation"
    why = "the system text and the newest messages that fit"

    def view(self, sizer, budget):
        return views.Truncation(sizer, self.budget)


class Clearing(Local):
    kind = "clearing"
    why = "context editing by its published rules, judged anew at each request: trigger = the budget, keep 3"

    def view(self, sizer, budget):
        return views.Clearing(sizer, self.budget)


class HeldClearing(Local):
    kind = "held clearing"
    why = "the same, but what was cleared stays cleared, and at least a tenth of the trigger goes at a time"

    def view(self, sizer, budget):
        return views.Clearing(sizer, self.budget, at_least=self.budget // 10, held=True)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Proxy(Arm):
    """A process before the provider."""

    def __init__(self, budget=None):
        super().__init__(budget)
        self.port = None

    def start(self, provider, out):
        self.port = free_port()
        home = self.home(out)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        command, settings = self.command(provider.port, home)
        told = {**os.environ, "HOME": str(home), **settings}
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=home, env=told, stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)
        self.wait(home)

    def home(self, out):
        """Where the process keeps its files and its log."""
        return out / "state" / self.name.replace(" ", "-")

    def wait(self, home):
        """Waits until the port is open."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.process.poll() is not None:
                lines = (home / "log").read_text(errors="replace").strip().splitlines()
                raise Failed(f"ended at once: {lines[-1] if lines else 'no message'}")
            with socket.socket() as one:
                one.settimeout(1)
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise Failed("did not open its port")

    def command(self, upstream, home):
        raise NotImplementedError

    def headers(self, session):
        return {}

    def speaker(self, provider, session, budget):
        return Speaker(self.port, self.headers(session))


class Headroom(Proxy):
    """Its tokenisers come with LiteLLM's wheel; without them it fetches them, fails, and optimises nothing. Its cache
    of answers would answer tasks that begin alike with each other's answers."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.kind = f"headroom {mode}"
        self.why = ("`headroom proxy --mode cache`, without its cache of answers, all else as it comes"
                    if mode == "cache" else f"the same with `--mode {mode}`")

    def settings(self):
        return {"package": environments.version("headroom"), "mode": self.mode}

    def command(self, upstream, home):
        place = environments.environment("headroom")
        tokens = environments.packages("headroom") / "litellm/litellm_core_utils/tokenizers"
        flags = ["--port", str(self.port), "--mode", self.mode, "--no-cache", "--no-rate-limit",
                 "--no-http2"]
        return [str(place / "bin/headroom"), "proxy", *flags], {
            "OPENAI_TARGET_API_URL": f"http://127.0.0.1:{upstream}", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "TIKTOKEN_CACHE_DIR": str(tokens), "HEADROOM_TELEMETRY": "off"}

    def notes(self, out):
        log = self.home(out) / "log"
        text = log.read_text(errors="replace") if log.exists() else ""
        if re.search("Kompress.*(failed|still loading|no usable)", text):
            return "its model for prose, Kompress, is fetched from a hub, and could not be had here"
        return ""


class LeanCtx(Proxy):
    """The engine as PyPI has it, built by its makers: its crate takes long to compile."""

    kind = "lean-ctx"
    why = "`lean-ctx proxy start`, all as it comes (`history_mode` is `cache-aware`)"

    def settings(self):
        return {"package": environments.version("lean-ctx")}

    def command(self, upstream, home):
        binary = environments.packages("lean-ctx") / "thinkery_leanctx_engine/bin/lean-ctx"
        binary.chmod(0o755)
        return [str(binary), "proxy", "start", f"--port={self.port}"], {
            "LEAN_CTX_OPENAI_UPSTREAM": f"http://127.0.0.1:{upstream}"}


@functools.cache
def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


class Plimsoll(Proxy):
    """Each budget, marked or not, has a process of its own, with a fresh store and no settings file."""

    kind = "plimsoll"
    why = "`plimsoll serve --budget …`, all else as it comes; the model never marks its work"

    def __init__(self, budget, binary, marked):
        super().__init__(budget)
        self.binary = binary
        self.marked = marked
        if marked:
            self.why = "the same, and the model marks its work once it is asked to"
            self.kind = "plimsoll marked"

    def settings(self):
        return {"binary": digest(self.binary), "marked": self.marked}

    def command(self, upstream, home):
        flags = ["--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{free_port()}", "--data",
                 str(home / "data"), "--budget", str(self.budget), "--log", "warn"]
        # It sets breakpoints of the cache before OpenAI's address alone, so that is its upstream, by way of an HTTP
        # proxy that is the provider.
        way = f"http://127.0.0.1:{upstream}"
        return [str(self.binary), "serve", *flags, "--upstream", "http://api.openai.com/v1"], {
            "HTTP_PROXY": way, "http_proxy": way, "NO_PROXY": "", "no_proxy": ""}

    def headers(self, session):
        return {"x-plimsoll-session": session["name"]}


def arms(budgets, binary):
    """All arms of a set, in the table's order."""
    found = [Arm()]
    for kind in (Truncation, Clearing, HeldClearing):
        found += [kind(budget) for budget in budgets]
    found += [Headroom("cache"), Headroom("token"), LeanCtx()]
    for marked in (False, True):
        found += [Plimsoll(budget, binary, marked) for budget in budgets]
    return found

"""The agents that people use, run headless: for each, how it is pointed at a base URL and what
starts it. It never judges what they do."""

import json
import os
import shutil
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
# Where `npm install` put what programs/package.json asks for.
PROGRAMS = Path(os.environ.get("PLIMSOLL_PROGRAMS", HERE / "programs")) / "node_modules/.bin"
LIMIT = 120
KEY = "sk-tests"
MODEL = "scripted"
# A model whose thoughts are bound to what stands before them.
OPUS = "claude-opus-5-5"


@dataclass(frozen=True)
class Run:
    """How a run of an agent ended."""

    code: int | None
    out: str
    err: str
    seconds: float

    def tail(self):
        return f"{self.out[-3_000:]}\n{self.err[-3_000:]}"


class Program:
    """One agent in a home and a repository of its own."""

    name = ""
    dialect = ""
    # Whether it can go on with its last session.
    resumes = True
    # A budget that the agent's own prologue fits into, and its work does not.
    ceiling = 16_000
    # A window that is full before its work is done, and how it ends then without the proxy.
    window = 30_000
    code_of_full_window = 0

    def __init__(self, at, place, compact_at=None):
        self.at = at
        # The tokens at which it summarises its own session.
        self.compact_at = compact_at
        self.home, self.repository = place / "home", place / "repository"
        self.home.mkdir()
        self.repository.mkdir()
        (self.repository / "notes.txt").write_text("first\n")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", self.repository]
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *command], check=True)
        self.configure()

    def write(self, path, text):
        path = self.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def configure(self):
        """Writes what the agent reads from its home."""

    def environment(self):
        """The variables that this agent reads."""
        return {}

    def command(self, task, resumed):
        """What starts it, without a terminal and without questions."""
        raise NotImplementedError

    @classmethod
    def executable(cls, name):
        return str(PROGRAMS / name)

    def start(self, command, **streams):
        """Starts a command of it in its home and its repository."""
        environment = {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            **self.environment(),
        }
        return subprocess.Popen(
            [str(part) for part in command],
            cwd=self.repository,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,
            **streams,
        )

    def run(self, task, resumed=False):
        begun = time.monotonic()
        process = self.start(
            self.command(task, resumed),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        code = None
        try:
            out, err = process.communicate(timeout=LIMIT)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
        return Run(code, out, err, time.monotonic() - begun)

    def files(self):
        """What stands in the repository, but for the agent's own settings and git's."""
        return {
            str(path.relative_to(self.repository)): path.read_text()
            for path in sorted(self.repository.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }

    def kept(self):
        """Everything that it stored in its home, as bytes by path."""
        return {
            path: path.read_bytes()
            for path in self.home.rglob("*")
            if path.is_file() and not path.is_symlink()
        }


class Opencode(Program):
    """opencode, by the provider package that speaks a dialect."""

    name = "opencode"
    package = ""
    # It summarises, goes on to the end, and reports the error all the same.
    code_of_full_window = 1

    def configure(self):
        limit = {"context": (self.compact_at or 192_000) + 8_000, "output": 8_000}
        models = {MODEL: {"name": MODEL, "limit": limit}}
        options = {"baseURL": self.at.base_url, "apiKey": KEY}
        provider = {"npm": self.package, "name": "tests", "options": options, "models": models}
        settings = {
            "$schema": "https://opencode.ai/config.json",
            "provider": {"tests": provider},
            "model": f"tests/{MODEL}",
            "small_model": f"tests/{MODEL}",
            "permission": {"*": "allow"},
            "share": "disabled",
            "autoupdate": False,
        }
        self.write("opencode.json", json.dumps(settings, indent=2))

    def environment(self):
        return {
            "OPENCODE_CONFIG": str(self.home / "opencode.json"),
            "npm_config_registry": "http://127.0.0.1:9",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }

    def command(self, task, resumed):
        more = ["-c"] if resumed else []
        return [self.executable("opencode"), "run", *more, task]


class OpencodeChat(Opencode):
    dialect, package = "chat", "@ai-sdk/openai-compatible"


class OpencodeResponses(Opencode):
    dialect, package = "responses", "@ai-sdk/openai"


class OpencodeMessages(Opencode):
    dialect, package = "messages", "@ai-sdk/anthropic"


class OpencodeAnthropic(Opencode):
    """opencode with a provider that it knows by itself, as `plimsoll setup` leaves it."""

    dialect = "messages"

    def configure(self):
        settings = {
            "provider": {"anthropic": {"options": {"baseURL": self.at.base_url, "apiKey": KEY}}},
            "model": f"anthropic/{OPUS}",
            "small_model": f"anthropic/{OPUS}",
            "permission": {"*": "allow"},
            "share": "disabled",
            "autoupdate": False,
        }
        self.write("opencode.json", json.dumps(settings))


class Codex(Program):
    """codex with its built-in provider, which tries a WebSocket first."""

    name, dialect = "codex", "responses"
    model = MODEL
    ceiling = 20_000
    code_of_full_window = 1

    def configure(self):
        limit = f"model_auto_compact_token_limit = {self.compact_at}\n" if self.compact_at else ""
        general = (
            f'model = "{self.model}"\ncheck_for_update_on_startup = false\n{limit}{self.provider()}'
        )
        self.write(".codex/config.toml", f"{general}[analytics]\nenabled = false\n")

    def provider(self):
        return f'openai_base_url = "{self.at.base_url}"\n'

    def environment(self):
        return {"OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY}

    def command(self, task, resumed):
        flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        more = ["resume", "--last"] if resumed else []
        return [self.executable("codex"), "exec", *flags, *more, task]


class CodexProvider(Codex):
    """codex with a provider of its configuration, which speaks HTTP only."""

    def provider(self):
        return (
            f'model_provider = "tests"\n[model_providers.tests]\nname = "tests"\n'
            f'base_url = "{self.at.base_url}"\nenv_key = "TESTS_API_KEY"\n'
            'wire_api = "responses"\n'
        )

    def environment(self):
        return {"TESTS_API_KEY": KEY}


class CodexSol(Codex):
    """codex on one of its own models: its tools stand in the input, and all that it does are programs."""

    name, model = "codex-code", "gpt-6.1-sol"
    ceiling = 30_000
    window = 40_000

    @classmethod
    def executable(cls, name):
        return super().executable("codex")


class CodexLuna(CodexSol, CodexProvider):
    """The same on a model that has other tools, with a provider of its configuration."""

    model = "gpt-5.6-luna"


class ClaudeCode(Program):
    """Claude Code; it summarises when it is told to."""

    name, dialect = "claude", "messages"
    ceiling = 24_000

    def environment(self):
        return {
            "ANTHROPIC_BASE_URL": self.at.base_url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": KEY,
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def command(self, task, resumed):
        more = ["-c"] if resumed else []
        tools = ["--allowedTools", "Bash,Read,Agent"]
        return [self.executable("claude"), *tools, *more, "-p", task]


class Pi(Program):
    """pi, by the API that its models file names."""

    name = "pi"
    api = ""
    window = 20_000

    def base(self):
        return self.at.base_url

    def configure(self):
        # It keeps 16,384 tokens free.
        window = (self.compact_at or 180_000) + 16_384
        model = {"id": MODEL, "name": MODEL, "contextWindow": window, "maxTokens": 8_000}
        provider = {"baseUrl": self.base(), "api": self.api, "apiKey": KEY, "models": [model]}
        settings = {"providers": {"tests": provider}}
        self.write(".pi/agent/models.json", json.dumps(settings, indent=2))

    def environment(self):
        return {"PI_OFFLINE": "1"}

    def command(self, task, resumed):
        more = ["-c"] if resumed else []
        model = ["--provider", "tests", "--model", MODEL]
        return [self.executable("pi"), *model, *more, "-p", task]


class PiChat(Pi):
    dialect, api = "chat", "openai-completions"


class PiResponses(Pi):
    dialect, api = "responses", "openai-responses"


class PiMessages(Pi):
    dialect, api = "messages", "anthropic-messages"

    def base(self):
        return self.at.base_url.removesuffix("/v1")


class PiAnthropic(PiMessages):
    """pi with a provider that it knows by itself, as `plimsoll setup` leaves it."""

    def configure(self):
        settings = {"providers": {"anthropic": {"baseUrl": self.base()}}}
        self.write(".pi/agent/models.json", json.dumps(settings))

    def environment(self):
        return {**super().environment(), "ANTHROPIC_API_KEY": KEY}

    def command(self, task, resumed):
        more = ["-c"] if resumed else []
        model = ["--provider", "anthropic", "--model", OPUS]
        return [self.executable("pi"), *model, *more, "-p", task]


class Mini(Program):
    """mini-swe-agent, which lies beside the Python that runs the tests."""

    name, dialect = "mini", "chat"
    resumes = False
    window = 20_000
    code_of_full_window = 1

    def environment(self):
        return {
            "OPENAI_API_KEY": KEY,
            "OPENAI_API_BASE": self.at.base_url,
            "MSWEA_GLOBAL_CONFIG_DIR": str(self.home),
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def command(self, task, resumed):
        mini = Path(sysconfig.get_path("scripts")) / "mini"
        flags = ["-y", "--exit-immediately", "-m", f"openai/{MODEL}"]
        return [mini, *flags, "-o", self.home / "trajectory.json", "-t", task]


class Copilot(Program):
    """GitHub Copilot CLI with a provider and a key of one's own."""

    name = "copilot"
    ceiling = 20_000
    # It ends at once (Chat), or asks for a summary by a request that is longer than the refused one.
    code_of_full_window = 1
    kind, api = "openai", "completions"
    # It unpacks itself at its first start, into one place for all homes.
    unpacked = PROGRAMS.parent / ".cache/copilot"

    def base(self):
        return self.at.base_url

    def environment(self):
        return {
            "COPILOT_PROVIDER_BASE_URL": self.base(),
            "COPILOT_PROVIDER_TYPE": self.kind,
            "COPILOT_PROVIDER_WIRE_API": self.api,
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(self.compact_at or 180_000),
            "COPILOT_MODEL": MODEL,
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PKG_CACHE_HOME": str(self.unpacked),
        }

    def command(self, task, resumed):
        more = ["--continue"] if resumed else []
        return [self.executable("copilot"), "--allow-all", "--no-ask-user", *more, "-p", task]


class CopilotChat(Copilot):
    dialect = "chat"


class CopilotResponses(Copilot):
    dialect, api = "responses", "responses"


class CopilotMessages(Copilot):
    dialect, kind = "messages", "anthropic"

    def base(self):
        return self.at.base_url.removesuffix("/v1")


ALL = {
    "opencode-chat": OpencodeChat,
    "opencode-responses": OpencodeResponses,
    "opencode-messages": OpencodeMessages,
    "codex": Codex,
    "codex-provider": CodexProvider,
    "codex-sol": CodexSol,
    "codex-luna": CodexLuna,
    "claude": ClaudeCode,
    "pi-chat": PiChat,
    "pi-responses": PiResponses,
    "pi-messages": PiMessages,
    "copilot-chat": CopilotChat,
    "copilot-responses": CopilotResponses,
    "copilot-messages": CopilotMessages,
    "mini": Mini,
}
# How they are when they know the model: they ask to have thoughts dropped that are not in their place.
KNOWN = {"opencode-anthropic": OpencodeAnthropic, "pi-anthropic": PiAnthropic}

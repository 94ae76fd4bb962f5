"""How large requests are, in o200k tokens.

Owns the formula, which is that of the project's own scripted provider: texts, names, arguments and the JSON of the
tools, 4 more for each message and 8 for each call. A `Sizer` remembers what it has counted. Never reads the network:
the ranks are those of the proxy's own `tiktoken-rs`.
"""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
A_MESSAGE = 4
A_CALL = 8
MARK = "prompt_cache_breakpoint"


def ranks():
    """The file of the vocabulary, in the crate that the proxy counts with."""
    told = subprocess.check_output(["cargo", "metadata", "--locked", "--format-version=1"], cwd=ROOT)
    manifest, = (crate["manifest_path"] for crate in json.loads(told)["packages"] if crate["name"] == "tiktoken-rs")
    return pathlib.Path(manifest).parent / "assets/o200k_base.tiktoken"


def o200k():
    """A function that counts the tokens of a text."""
    import base64

    import tiktoken
    import tiktoken_ext.openai_public as public

    pairs = (line.split() for line in ranks().read_bytes().splitlines())
    known = {base64.b64decode(token): int(rank) for token, rank in pairs}
    public.load_tiktoken_bpe = lambda *_, **__: known
    encoding = tiktoken.Encoding(**public.o200k_base())
    return lambda text: len(encoding.encode_ordinary(text))


def text_of(content):
    """The text of a message's content, whichever form it has."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def marked(message):
    """Whether a message has an explicit breakpoint of the cache."""
    content = message.get("content")
    return isinstance(content, list) and any(MARK in part for part in content)


def calls_of(message):
    """Names and arguments of the calls of a message."""
    return [(call["function"]["name"], call["function"].get("arguments") or "")
            for call in message.get("tool_calls") or []]


def identity(message):
    """What makes two messages the same to a cache. A breakpoint does not, nor the form of a single text."""
    content = message.get("content")
    if not isinstance(content, (str, type(None))):
        parts = [{key: value for key, value in part.items() if key != MARK} for part in content]
        alone = len(parts) == 1 and parts[0].keys() == {"type", "text"}
        content = parts[0]["text"] if alone else json.dumps(parts, sort_keys=True)
    rest = tuple(sorted((key, json.dumps(value, sort_keys=True)) for key, value in message.items()
                        if key not in ("role", "content", "tool_call_id", "tool_calls")))
    calls = tuple((call.get("id"), *pair) for call, pair in zip(message.get("tool_calls") or [], calls_of(message)))
    return (message.get("role"), content, message.get("tool_call_id"), calls, rest)


class Sizer:
    """Sizes of texts and messages, remembered."""

    def __init__(self, count):
        self.count = count
        self.known = {}

    def text(self, text):
        key = hash(text)
        if key not in self.known:
            self.known[key] = self.count(text)
        return self.known[key]

    def said(self, message):
        """Tokens of what a model wrote."""
        return self.text(text_of(message.get("content"))) + sum(
            self.text(name) + self.text(arguments) for name, arguments in calls_of(message))

    def message(self, message):
        return A_MESSAGE + self.said(message) + A_CALL * len(message.get("tool_calls") or [])

    def tools(self, tools):
        return self.text(json.dumps(tools, separators=(",", ":"), ensure_ascii=False)) if tools else 0

    def request(self, messages, tools):
        return self.tools(tools) + sum(map(self.message, messages))

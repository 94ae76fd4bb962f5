"""Recorded sessions as requests of an agent: a history of Chat messages, and the tools that it offers.

Owns what is left out of a recording (thoughts, metadata) and how what a provider would refuse is made whole: an empty
text says so in words. Never shortens anything.
"""

import hashlib
import json
import pathlib

EMPTY = "(empty)"
FIELDS = ("role", "content", "tool_calls", "tool_call_id")


def read(path):
    """The messages of a recording."""
    import zstandard

    raw = path.read_bytes()
    if path.suffix == ".zst":
        raw = zstandard.ZstdDecompressor().stream_reader(raw).read()
    lines = map(json.loads, raw.decode().splitlines())
    return [plain(line) for line in lines if "_meta" not in line]


def plain(message):
    """A message as an agent sends it."""
    kept = {key: message[key] for key in FIELDS if message.get(key) is not None}
    if not kept.get("tool_calls"):
        kept.pop("tool_calls", None)
        kept["content"] = kept.get("content") or EMPTY
    elif not kept.get("content"):
        kept["content"] = None
    return kept


def tools_of(messages):
    """The tools that a session's calls name. A recording does not say what their schemas were."""
    names = {call["function"]["name"] for one in messages for call in one.get("tool_calls") or []}
    return [{"type": "function", "function": {
        "name": name, "description": name, "parameters": {"type": "object", "properties": {}}}}
        for name in sorted(names)]


def session(name, messages, tools):
    """A session, with a digest by which results of it are known."""
    digest = hashlib.sha256(json.dumps([messages, tools], sort_keys=True).encode()).hexdigest()
    return {"name": name, "messages": messages, "tools": tools, "digest": digest[:16]}


def recorded(folder, sizer, least):
    """The sessions of a directory that have at least so many tokens, the shortest first."""
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*.jsonl*")):
        messages = read(path)
        tools = tools_of(messages)
        size = sum(map(sizer.said, messages))
        if size >= least:
            found.append((size, session(path.name.split(".jsonl")[0], messages, tools)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]

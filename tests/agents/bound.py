"""Thoughts that are bound to everything before them: which thoughts of a request in Messages are
valid, in what words one is refused that is not, and what the next one is bound to.

It keeps nothing between requests, since a signature holds all that is needed to judge it. It knows
nothing of the proxy. What the vendor compares is told in docs/build/providers.md.
"""

import hashlib
import json
from dataclasses import dataclass, replace

from messages import blocks

CONTROLS = "thinking-binding-controls-2026-08-01"
REASON = "prefix_binding_mismatch"
# What a tool or a block says by these is the same as to say nothing.
DEFAULTS = (
    ("strict", False),
    ("eager_input_streaming", False),
    ("is_error", False),
    ("citations", []),
    ("type", "custom"),
    ("description", ""),
)


@dataclass(frozen=True)
class Judged:
    """What a request's thoughts are worth."""

    # Why it is refused, if it is.
    refusal: str | None
    # What the answer's thought is bound to, as a part of its signature.
    bond: str
    # How many thoughts the model sees, and the paths of those that it does not.
    valid: int
    invalid: tuple
    # What the answer says of these, where it is asked.
    told: list | None


@dataclass(frozen=True)
class Bond:
    """What stands before a thought: the parts of a request, and the thoughts that are left of it."""

    model: str
    system: str
    tools: str
    messages: str
    # The thought right before it, and how many there are in all.
    before: str
    count: int

    def written(self):
        return "-".join(str(part) for part in vars(self).values())

    @classmethod
    def read(cls, text):
        *parts, count = text.split("-")
        return cls(*parts, int(count))


def judge(body, headers):
    """Judges a request that breaks no other rule."""
    controls = CONTROLS in headers.get("anthropic-beta", "")
    binding = (body.get("thinking") or {}).get("block_binding") or {}
    drops = binding.get("prefix_mismatch_behavior") == "drop_block"
    now, broken = walk(body, drops)
    told = [{"type": "thinking_dropped", "path": path, "reason": REASON} for path, _ in broken]
    refusal = None
    if binding and not controls:
        refusal = "thinking.adaptive.block_binding: Extra inputs are not permitted"
    elif broken and not drops:
        refusal = words(*broken[0], controls)
    invalid = tuple(path for path, _ in broken)
    return Judged(refusal, now.written(), now.count, invalid, told if controls else None)


def walk(body, drops):
    """What stands behind a request, and the paths of the thoughts that are not valid, with the reasons."""
    tools = {tool["name"]: plain(tool) for tool in body.get("tools") or [] if seen(tool)}
    system = digest(content(body.get("system", "")))
    now, broken = Bond(digest(body["model"]), system, digest(tools), "none", "none", 0), []
    for place, message in enumerate(body["messages"]):
        # What a message says beside its content counts from its first block on.
        rest = {key: value for key, value in message.items() if key != "content"}
        for at, block in enumerate(blocks(message)):
            if block["type"] != "thinking":
                if compared := content([block]):
                    now = replace(now, messages=digest([now.messages, rest, compared]))
                    rest = {}
                continue
            made = Bond.read(block["signature"].split(".")[2])
            # Another model's thought is left out without a word.
            if made.model != now.model:
                continue
            why = difference(made, now)
            # One that is dropped takes all behind it along.
            if why or (drops and broken):
                broken.append((f"messages.{place}.content.{at}", why))
            else:
                now = replace(now, before=digest(block["signature"]), count=now.count + 1)
    return now, broken


def difference(made, now):
    """What of the things that stood before a thought is another now, in the vendor's words."""
    if made.system != now.system:
        return "The `system` prompt differs from the one this block was created with."
    if made.tools != now.tools:
        return "The `tools` list differs from the one this block was created with."
    if made.messages != now.messages:
        # Where it begins to differ can't be told from digests.
        return (
            "Content before this block differs from when it was created, first at "
            "`messages.0.content.0`."
        )
    # The oldest thoughts may be gone. What is left is a run of what there was.
    if now.count > made.count or (now.count and made.before != now.before):
        return (
            "The `thinking` block that preceded this one when it was created is missing from this "
            "request."
        )
    return None


def words(path, why, controls):
    """The refusal, as the vendor puts it."""
    beta = f"That setting requires the `{CONTROLS}` value in the `anthropic-beta` header. "
    return (
        f"{path}: Invalid `signature` in `thinking` block. The block is bound to a different "
        "conversation. Remove the block, or set "
        f"`thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". {'' if controls else beta}{why}"
    )


def seen(tool):
    """A tool that is loaded when it is asked for is no part of what the model sees at first."""
    return not tool.get("defer_loading")


def content(value):
    """What is compared of a content: text alone and one block of it are the same, white space
    around it is nothing, and thoughts don't count."""
    found = []
    for block in blocks({"content": value}):
        if block.get("type") == "text":
            text = block["text"].strip()
            found += [{**plain(block), "text": text}] if text else []
        elif block.get("type") == "tool_result":
            found.append({**plain(block), "content": content(block.get("content") or "")})
        elif block.get("type") != "thinking":
            found.append(plain(block))
    return found


def plain(value):
    """What is compared of a tool or a block: no markers, nothing that is null or goes without saying."""
    return {
        key: part
        for key, part in value.items()
        if key != "cache_control" and part is not None and (key, part) not in DEFAULTS
    }


def digest(value):
    """The same for the same value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""Thoughts that are bound to everything before them: which thoughts of a request in Messages are
valid, in what words one is refused that is not, and what the next one is bound to.

It keeps nothing between requests, since a signature holds all that is needed to judge it. It knows
nothing of the proxy. What the vendor compares is told in docs/providers.md.
"""

import hashlib
import json
from dataclasses import dataclass

from messages import blocks

CONTROLS = "thinking-binding-controls-2026-08-01"
THOUGHTS = ("thinking", "redacted_thinking")
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
    # How many thoughts are valid, and the paths of those that are not.
    valid: int
    invalid: tuple


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
    model, system = digest(body["model"]), digest(content(body.get("system", "")))
    tools = {tool["name"]: plain(tool) for tool in body.get("tools") or [] if seen(tool)}
    front = (model, system, digest(tools))
    said, before, count, invalid, refusal = "", "none", 0, [], None
    for place, message in enumerate(body["messages"]):
        # What a message says beside its content counts from its first block on.
        rest = {key: value for key, value in message.items() if key != "content"}
        for at, block in enumerate(blocks(message)):
            if block["type"] not in THOUGHTS:
                if compared := content([block]):
                    said, rest = digest([said, rest, compared]), {}
                continue
            made = Bond.read(block["signature"].split(".")[2])
            # Another model's thought is left out without a word.
            if made.model != model:
                continue
            now = Bond(*front, said, before, count)
            if why := difference(made, now):
                path = f"messages.{place}.content.{at}"
                invalid.append(path)
                refusal = refusal or words(path, why, headers)
            else:
                before, count = digest(block["signature"]), count + 1
    bond = Bond(*front, said, before, count).written()
    return Judged(refusal, bond, count, tuple(invalid))


def difference(made, now):
    """What of the things that stood before a thought is another now, in the vendor's words."""
    if made.system != now.system:
        return "The `system` prompt differs from the one this block was created with."
    if made.tools != now.tools:
        return "The `tools` list differs from the one this block was created with."
    if made.messages != now.messages:
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


def words(path, why, headers):
    known = CONTROLS in headers.get("anthropic-beta", "")
    beta = f"That setting requires the `{CONTROLS}` value in the `anthropic-beta` header. "
    return (
        f"{path}: Invalid `signature` in `thinking` block. The block is bound to a different "
        "conversation. Remove the block, or set "
        f"`thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". {'' if known else beta}{why}"
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
        elif block.get("type") not in THOUGHTS:
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

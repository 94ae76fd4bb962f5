"""A request as a model reads it: pieces of text, each of which is tokenised by itself, so that a prefix
of messages is a prefix of tokens. Owns the two ways of writing messages; never reads a score."""

import json

# What is scored of an answer is cut here, so that no text is tokenised for nothing.
MOST = 8_000
# For base models, and for those that know ChatML.
FORMS = {
    "plain": {
        "system": ("\n\n### System\n", ""),
        "user": ("\n\n### User\n", ""),
        "assistant": ("\n\n### Assistant\n", ""),
        "tool": ("\n\n### Result\n", ""),
    },
    "chatml": {
        "system": ("<|im_start|>system\n", "<|im_end|>\n"),
        "user": ("<|im_start|>user\n", "<|im_end|>\n"),
        "assistant": ("<|im_start|>assistant\n", "<|im_end|>\n"),
        "tool": ("<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"),
    },
}


def said(content):
    """The texts of a message's content."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or [])


def values(arguments):
    """A call's arguments as they are meant: one line a key, strings without their escapes."""
    try:
        read = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(read, dict):
        return arguments
    shown = ((key, v if isinstance(v, str) else json.dumps(v)) for key, v in read.items())
    return "".join(f"\n{key}: {value}" for key, value in shown)


def body(message):
    """What a message says: its text, and its calls behind it."""
    calls = (call["function"] for call in message.get("tool_calls") or [])
    told = (f"\n[call] {call['name']}{values(call['arguments'])}\n" for call in calls)
    return said(message.get("content")) + "".join(told)


def view(messages, form):
    """The pieces of a view with the head of the answer behind it: (text, whether it is markup)."""
    marks, pieces = FORMS[form], []
    for message in messages:
        before, behind = marks.get(message["role"], marks["user"])
        pieces += [(before, True), (body(message), False), (behind, True)]
    pieces.append((marks["assistant"][0], True))
    return [piece for piece in pieces if piece[0]]


def answer(message):
    """What is scored."""
    return body(message)[:MOST]


def kind(message):
    """What an answer does: edit, read, search, run, call (another tool) or text, by its first call."""
    calls = message.get("tool_calls") or []
    if not calls:
        return "text"
    name = calls[0]["function"]["name"].lower()
    arguments = calls[0]["function"]["arguments"]
    for words, told in (
        (("edit", "write", "patch", "replace", "create"), "edit"),
        (("grep", "glob", "search", "find"), "search"),
        (("read", "view", "cat", "open", "list", "ls"), "read"),
    ):
        if any(word in name for word in words):
            return told
    if any(word in name for word in ("bash", "shell", "exec", "run", "command", "terminal")):
        return "run" if arguments else "text"
    return "call"

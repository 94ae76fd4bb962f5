"""What a strict provider of Chat Completions would refuse, and what an arm may not touch.

`problems` names what is wrong with the messages of a request; `untouched` compares it with what the agent sent.
Owns these rules. Never repairs anything.
"""

from tokens import text_of

ROLES = ("system", "developer", "user", "assistant", "tool")
FIRST = ("system", "developer")


def problems(messages):
    """What is wrong with a request's messages, each kind named once."""
    found = set()
    said = [message for message in messages if message.get("role") not in FIRST]
    if not said:
        found.add("no message")
    elif said[0].get("role") == "tool":
        found.add("begins with a result")
    waiting, behind = {}, False
    for message in messages:
        role = message.get("role")
        if role not in ROLES:
            found.add("unknown role")
            continue
        if empty(message):
            found.add("empty content")
        if role == "tool":
            if not behind or message.get("tool_call_id") not in waiting:
                found.add("result without a call")
            elif waiting[message["tool_call_id"]]:
                found.add("two results of one call")
            else:
                waiting[message["tool_call_id"]] = True
            continue
        if not all(waiting.values()):
            found.add("call without a result")
        calls = message.get("tool_calls") or []
        if calls and role != "assistant":
            found.add("calls of another role")
        waiting = {call.get("id"): False for call in calls}
        if len(waiting) < len(calls):
            found.add("two calls of one id")
        behind = role == "assistant" and bool(calls)
    if not all(waiting.values()):
        found.add("call without a result")
    return sorted(found)


def empty(message):
    """Whether a message says nothing. An answer may have calls alone."""
    if message.get("role") == "assistant" and message.get("tool_calls"):
        return False
    content = message.get("content")
    if isinstance(content, list):
        return not content or any(part.get("type") == "text" and not part.get("text") for part in content)
    return not content


def untouched(sent, messages):
    """Users' texts of the agent's request that are not in a body in their order and unchanged, and whether its
    system text is still there, at the front."""
    return lost(sent, messages), kept(sent, messages)


def lost(sent, messages):
    """How many texts of users are missing."""
    shown = [text_of(one.get("content")) for one in messages if one.get("role") == "user"]
    missing, at = 0, 0
    for one in sent:
        if one.get("role") != "user":
            continue
        text = text_of(one.get("content"))
        try:
            at = shown.index(text, at) + 1
        except ValueError:
            missing += 1
    return missing


def kept(sent, messages):
    """Whether each system text is still what the body begins with. A proxy may write behind it."""
    wanted = [text_of(one.get("content")) for one in sent if one.get("role") in FIRST]
    shown = [text_of(one.get("content")) for one in messages if one.get("role") in FIRST]
    return len(wanted) <= len(shown) and all(new.startswith(old) for old, new in zip(wanted, shown))

"""Anthropic's Messages as the scripted provider speaks it: what it refuses, what a request asks for,
and how an answer is put, whole or streamed. It never decides what is said."""

import hashlib
import json
import re

from scripts import Asked, place_of, used

PATH = "/v1/messages"
# What the frame holds that closes an answer.
CLOSES = "event: message_delta"
PIECE = 7
MARKERS = 4
# What the content of a result may hold.
IN_RESULTS = {"text", "image", "document", "search_result", "tool_reference"}


def blocks(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def signature(step, hop, text, bond=""):
    """What only the provider can make: it ties a thought to the answer that it stood in, and to what
    stood before it where that counts."""
    plain = f"{step}.{hop}.{bond}."
    return plain + hashlib.sha256(f"{plain}{text}".encode()).hexdigest()


def thought(body, said):
    omitted = (body.get("thinking") or {}).get("display") == "omitted"
    text = "" if omitted else f"Step {said.step}, hop {said.hop}."
    return {
        "type": "thinking",
        "thinking": text,
        "signature": signature(said.step, said.hop, text, said.bond or ""),
    }


def thinks(body, said):
    """A model whose thoughts are bound thinks unless it is told not to, others if they are told to."""
    if said.bond is None:
        return bool(body.get("thinking"))
    return (body.get("thinking") or {}).get("type") != "disabled"


def refusal(body):
    """The first rule that the request breaks, as the provider would word it."""
    for field in ("model", "max_tokens", "messages"):
        if field not in body:
            return f"{field}: Field required"
    if not body["messages"]:
        return "messages: at least one message is required"
    names = [tool["name"] for tool in body.get("tools") or []]
    if len(names) != len(set(names)):
        return "tools: Tool names must be unique."
    problem = _markers(body)
    if problem:
        return problem
    budget = (body.get("thinking") or {}).get("budget_tokens", 0)
    if body["max_tokens"] <= budget:
        return "`max_tokens` must be greater than `thinking.budget_tokens`."
    return _messages(body["messages"])


def marked(value):
    """All that has a marker, in the order in which the provider reads a request."""
    if isinstance(value, dict):
        first = [value[key] for key in ("tools", "system", "messages") if key in value]
        rest = [held for key, held in value.items() if key not in ("tools", "system", "messages")]
        held = [found for part in first + rest for found in marked(part)]
        return held + ([value] if value.get("cache_control") else [])
    if isinstance(value, list):
        return [found for part in value for found in marked(part)]
    return []


def _markers(body):
    found, short = marked(body), False
    if len(found) > MARKERS:
        return f"A maximum of 4 blocks with cache_control may be provided. Found {len(found)}."
    for block in found:
        if block.get("type") in ("thinking", "redacted_thinking"):
            return "cache_control: Extra inputs are not permitted on `thinking` blocks"
        if block.get("type") == "text" and not block["text"].strip():
            return "cache_control cannot be set for empty text blocks"
        hour = block["cache_control"].get("ttl", "5m") == "1h"
        if hour and short:
            return "a ttl='1h' cache_control block must not come after a ttl='5m' one"
        short = short or not hour
    return None


def _messages(messages):
    awaited, earlier = [], None
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant", "system"):
            return f"messages.{place}.role: unexpected {role!r}"
        if place == 0 and role != "user":
            return "messages: first message must use the \"user\" role"
        if role == "system":
            problem = _system(place, messages)
            if problem:
                return problem
            continue
        if role == earlier == "assistant":
            return f"messages.{place}: roles must alternate where thinking is signed"
        if not message.get("content") or not all(_filled(block) for block in blocks(message)):
            return f"messages.{place}: all messages must have non-empty content"
        if role == "assistant":
            problem, awaited = _assistant(place, message, awaited)
        else:
            problem, awaited = _user(place, message, awaited), []
        if problem:
            return problem
        earlier = role
    if awaited:
        return f"`tool_use` ids were found without `tool_result` blocks: {awaited}"
    return None


def _filled(block):
    return block.get("type") != "text" or bool(block["text"].strip())


def _system(place, messages):
    before, after = messages[place - 1], messages[place + 1 : place + 2]
    if before["role"] != "user":
        return f"messages.{place}: a system message must follow a user message"
    if after and after[0]["role"] != "assistant":
        return f"messages.{place}: a system message must be last or precede an assistant message"
    return None


def _assistant(place, message, awaited):
    if awaited:
        return f"messages.{place}: `tool_use` ids without `tool_result`: {awaited}", []
    calls = [block["id"] for block in blocks(message) if block["type"] == "tool_use"]
    if len(calls) != len(set(calls)):
        return f"messages.{place}: `tool_use` ids must be unique", []
    for block in blocks(message):
        if block["type"] == "tool_use" and not isinstance(block["input"], dict):
            return f"messages.{place}: tool_use.input: Input should be a valid dictionary", []
        if block["type"] == "thinking":
            step, hop, bond, _ = block["signature"].split(".")
            if block["signature"] != signature(step, hop, block["thinking"], bond):
                return f"messages.{place}: Invalid `signature` in `thinking` block", []
            # One that is bound to more than its answer is judged by that.
            if not bond and any(place_of(call) != (int(step), int(hop)) for call in calls):
                return f"messages.{place}: `thinking` blocks cannot be modified or moved", []
    return None, calls


def _user(place, message, awaited):
    results = [block for block in blocks(message) if block["type"] == "tool_result"]
    first = blocks(message)[: len(results)]
    if awaited and [block.get("type") for block in first] != ["tool_result"] * len(results):
        return f"messages.{place}: `tool_result` blocks must come first"
    ids = [block["tool_use_id"] for block in results]
    for id in ids:
        if id not in awaited:
            return f"messages.{place}: unexpected `tool_use_id` found in `tool_result`: {id}"
    if sorted(ids) != sorted(awaited):
        return f"messages.{place}: `tool_use` ids were found without `tool_result`: {awaited}"
    for result in results:
        held = result.get("content")
        kinds = {block.get("type") for block in held} if isinstance(held, list) else set()
        if not kinds <= IN_RESULTS:
            return f"messages.{place}: tool_result.content: unexpected {kinds - IN_RESULTS}"
    return None


def asked(body):
    tail = []
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            break
        if message["role"] == "user":
            tail += reversed(blocks(message))
    return Asked(
        offered=used(offered(body), body),
        results=[block["tool_use_id"] for block in tail if block["type"] == "tool_result"],
        users=[block["text"] for block in tail if block["type"] == "text"],
        whole=json.dumps(body["messages"]),
        compacts=body.get("tool_choice") == {"type": "none"},
    )


def exchanged(body):
    """The calls of a request's history, id to name, and the ids that have a result."""
    history = [block for message in body["messages"] for block in blocks(message)]
    calls = {block["id"]: block["name"] for block in history if block["type"] == "tool_use"}
    return calls, {b["tool_use_id"] for b in history if b["type"] == "tool_result"}


def offered(body):
    """The names of the tools, in order."""
    return [tool["name"] for tool in body.get("tools") or []]


def content(body, said):
    thoughts = [thought(body, said)] if thinks(body, said) else []
    texts = [{"type": "text", "text": said.text}] if said.text else []
    calls = [
        {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}
        for id, name, arguments in said.calls
    ]
    return thoughts + texts + calls


def usage(prompt):
    return {
        "input_tokens": prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 10,
    }


def whole(number, body, said, prompt):
    told = {} if said.told is None else {"input_transformations": said.told}
    return {
        **told,
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        # Models whose thoughts are bound have no date behind their name.
        "model": body["model"] if said.bond else f"{body['model']}-2026",
        "content": content(body, said),
        "stop_reason": "tool_use" if said.calls else "end_turn",
        "stop_sequence": None,
        "usage": usage(prompt),
    }


def frames(number, body, said, prompt):
    message = whole(number, body, said, prompt)

    def event(kind, **more):
        data = json.dumps({"type": kind, **more}, ensure_ascii=False)
        return f"event: {kind}\ndata: {data}\n\n"

    def deltas(block):
        if block["type"] == "thinking":
            if block["thinking"]:
                yield {"type": "thinking_delta", "thinking": block["thinking"]}
            yield {"type": "signature_delta", "signature": block["signature"]}
        elif block["type"] == "text":
            for word in re.findall(r"\S+\s*", block["text"]):
                yield {"type": "text_delta", "text": word}
        else:
            arguments = json.dumps(block["input"], ensure_ascii=False)
            yield {"type": "input_json_delta", "partial_json": ""}
            for at in range(0, len(arguments), PIECE):
                yield {"type": "input_json_delta", "partial_json": arguments[at : at + PIECE]}

    empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}
    begun = {**message, "content": [], "stop_reason": None}
    begun["usage"] = {**message["usage"], "output_tokens": 1}
    yield event("message_start", message=begun)
    yield event("ping")
    for index, block in enumerate(message["content"]):
        opened = {**block, **empty.get(block["type"], {"input": {}})}
        yield event("content_block_start", index=index, content_block=opened)
        for delta in deltas(block):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage={"output_tokens": 10})
    yield event("message_stop")


def too_long(prompt, window):
    return error(400, f"prompt is too long: {prompt} tokens > {window} maximum", None)


def error(status, message, code):
    kinds = {
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        500: "api_error",
        529: "overloaded_error",
    }
    kind = kinds.get(status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}

"""Chat Completions as the scripted provider speaks it: what a request asks for, and how an answer
is put, whole or streamed. It never decides what is said."""

import json
import re

from rules import refusal
from scripts import Asked, used

__all__ = [
    "CLOSES",
    "PATH",
    "asked",
    "error",
    "exchanged",
    "frames",
    "offered",
    "refusal",
    "too_long",
    "whole",
]

PATH = "/v1/chat/completions"
# What the frame holds that closes an answer with calls.
CLOSES = '"finish_reason": "tool_calls"'
DONE = "data: [DONE]\n\n"
# Arguments are streamed in pieces of this many characters, so that no call fits one frame.
PIECE = 7


def asked(body):
    tail = []
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            break
        tail.append(message)
    return Asked(
        offered=used(offered(body), body),
        results=[message["tool_call_id"] for message in tail if message["role"] == "tool"],
        users=[json.dumps(m["content"]) for m in tail if m["role"] == "user"],
        whole=json.dumps(body["messages"]),
        compacts=body.get("tool_choice") == "none",
    )


def exchanged(body):
    """The calls of a request's history, id to name, and the ids that have a result."""
    history = body["messages"]
    calls = [call for message in history for call in message.get("tool_calls") or []]
    results = {message["tool_call_id"] for message in history if message["role"] == "tool"}
    return {call["id"]: call["function"]["name"] for call in calls}, results


def offered(body):
    """The names of the tools, in order."""
    return [tool["function"]["name"] for tool in body.get("tools") or []]


def meta(number, body):
    return {
        "id": f"chatcmpl-{number}",
        "created": 1_700_000_000 + number,
        "model": f"{body['model']}-2026",
    }


def usage(prompt):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": 10,
        "total_tokens": prompt + 10,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def whole(number, body, said, prompt):
    message = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in said.calls
        ]
    finish = "tool_calls" if said.calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    head = {**meta(number, body), "object": "chat.completion"}
    return {**head, "choices": [choice], "usage": usage(prompt)}


def frames(number, body, said, prompt):
    chunk = {**meta(number, body), "object": "chat.completion.chunk"}

    def frame(choices, **more):
        data = json.dumps({**chunk, "choices": choices, **more}, ensure_ascii=False)
        return f"data: {data}\n\n"

    def delta(delta, reason=None):
        return frame([{"index": 0, "delta": delta, "finish_reason": reason}])

    yield delta({"role": "assistant", "content": None if said.calls and not said.text else ""})
    for word in re.findall(r"\S+\s*", said.text):
        yield delta({"content": word})
    for place, (id, name, arguments) in enumerate(said.calls):
        head = {"index": place, "id": id, "type": "function"}
        yield delta({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]})
        for at in range(0, len(arguments), PIECE):
            piece = {"arguments": arguments[at : at + PIECE]}
            yield delta({"tool_calls": [{"index": place, "function": piece}]})
    yield delta({}, "tool_calls" if said.calls else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        yield frame([], usage=usage(prompt))
    yield DONE


def too_long(prompt, window):
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted "
        f"in {prompt} tokens. Please reduce the length of the messages."
    )
    return error(400, message, "context_length_exceeded")


def error(status, message, code):
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": code,
        }
    }

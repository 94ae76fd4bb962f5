"""OpenAI's Responses as the scripted provider speaks it: what it refuses, what a request asks for,
and how an answer is put, whole or streamed. It never decides what is said."""

import json
import re

from scripts import Asked, used

PATH = "/v1/responses"
# What the frame holds that closes an answer.
CLOSES = "event: response.completed"
PIECE = 7
COMPACTION = "compaction"
# Calls of functions and of tools that take any text, with where that stands, and their results.
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
RESULTS = ("function_call_output", "custom_tool_call_output")
# What an output that is a list may hold.
IN_OUTPUT = ("input_text", "input_image", "input_file")


def items(body):
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def declared(body):
    """The tools that stand beside the input and in it, the latter as agents declare them to models of
    their own."""
    inside = [item["tools"] for item in items(body) if item.get("type") == "additional_tools"]
    return [*(body.get("tools") or []), *(tool for tools in inside for tool in tools)]


def programs(body):
    """The tools that take any text, by the namespace and the name."""
    inside = [(t["name"], tool) for t in declared(body) for tool in t.get("tools") or []]
    return {f"{space}.{tool['name']}" for space, tool in inside if tool["type"] == "custom"}


def refusal(body):
    """The first rule that the request breaks, as the provider would word it. It has kept nothing
    that could be referred to."""
    if not body.get("model"):
        return "Missing required parameter: 'model'."
    if body.get("previous_response_id"):
        return f"Previous response with id '{body['previous_response_id']}' not found."
    if not body.get("input"):
        return "Missing required parameter: 'input'."
    # The provider's own tools have a type and no name.
    names = [tool["name"] for tool in declared(body) if "name" in tool]
    if len(names) != len(set(names)):
        return "Tool names must be unique"
    if body.get("max_output_tokens", 16) < 16:
        return "Invalid 'max_output_tokens': integer below minimum value."
    return _calls(items(body)) or _reasoning(items(body))


def _calls(given):
    called, answered = [], []
    ids = [item["id"] for item in given if "id" in item]
    if len(ids) != len(set(ids)):
        return "Duplicate item found. Remove duplicate items from your input and try again."
    for place, item in enumerate(given):
        if item.get("type") == "item_reference" or set(item) == {"id"}:
            return f"Item with id '{item['id']}' not found."
        kind = item.get("type", "message")
        if kind in CALLS:
            if item["call_id"] in called:
                return f"Duplicate call_id in input[{place}]"
            if not isinstance(item[CALLS[kind]], str):
                return f"Invalid type for 'input[{place}].{CALLS[kind]}'"
            called.append(item["call_id"])
        elif kind in RESULTS:
            if item["call_id"] not in called:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            output = item["output"] if isinstance(item["output"], list) else []
            if any(part.get("type") not in IN_OUTPUT for part in output):
                return f"Invalid value in 'input[{place}].output'"
            answered.append(item["call_id"])
    for call in called:
        if call not in answered:
            return f"No tool output found for function call {call}."
    return None


def _reasoning(given):
    """Reasoning stands right before an item of its own answer, and such an item, if it has its id,
    behind its reasoning. Some clients (Copilot CLI) give messages and calls ids of their own: such
    a call is known by its call id, and such a message by the call behind it."""
    for place, item in enumerate(given):
        own = of(item.get("id", ""))
        if item.get("type") == "reasoning":
            if not follows(given, place + 1, own):
                return (
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required "
                    "following item."
                )
        elif own and item.get("type") in ("message", *CALLS):
            if f"rs_{own}" not in [other.get("id") for other in given[:place]]:
                return (
                    f"Item '{item['id']}' of type '{item['type']}' was provided without its "
                    f"required 'reasoning' item: 'rs_{own}'."
                )
    return None


def follows(given, place, own):
    """Whether what stands here was said in the answer `own`, as far as that can be told."""
    item = given[place] if place < len(given) else {}
    id = item.get("id", "")
    if not id or of(id):
        return of(id) == own
    if item.get("type") in CALLS:
        return of(f"fc_{item['call_id'].removeprefix('call_')}") == own
    behind = given[place + 1] if place + 1 < len(given) else {}
    if behind.get("type") in CALLS:
        return follows(given, place + 1, own)
    return item.get("role") == "assistant"


def of(id):
    """The answer that an item's id was issued in, where it was one that reasoned."""
    found = re.match(r"(?:rs|fc|ctc|msg)_(s\d+h\d+)", id)
    return found[1] if found else ""


def asked(body):
    tail = []
    for item in reversed(items(body)):
        if item.get("type") in (*CALLS, "reasoning") or item.get("role") == "assistant":
            break
        tail.append(item)
    said = [item for item in tail if item.get("role") == "user" or item.get("type") == COMPACTION]
    return Asked(
        offered=used(offered(body), body),
        results=[item["call_id"] for item in tail if item.get("type") in RESULTS],
        users=[json.dumps(item.get("content") or item["encrypted_content"]) for item in said],
        whole=json.dumps(items(body)),
        compacts=compacts(body) or body.get("tool_choice") == "none",
    )


def compacts(body):
    """Whether the provider is asked for a summary that only itself can read."""
    return items(body)[-1].get("type") == "compaction_trigger"


def exchanged(body):
    """The calls of a request's history, id to name, and the ids that have a result."""
    given = items(body)
    calls = {i["call_id"]: i["name"] for i in given if i.get("type") in CALLS}
    return calls, {i["call_id"] for i in given if i.get("type") in RESULTS}


def offered(body):
    """The names of the tools, in order; the provider's own are known by their type."""
    return [tool.get("name") or tool["type"] for tool in declared(body)]


def output(number, body, said):
    own = f"s{said.step}h{said.hop}"
    if compacts(body):
        return [{"id": f"cmp_{number}", "type": COMPACTION, "encrypted_content": said.text}]
    listed = []
    reasons = "reasoning" in body
    if reasons:
        summary = [{"type": "summary_text", "text": f"Thinking of {own}."}]
        listed.append({"id": f"rs_{own}", "type": "reasoning", "summary": summary})
        if "reasoning.encrypted_content" in body.get("include", []):
            listed[0]["encrypted_content"] = f"sealed {own}"
    mark = own if reasons else f"x{number}"
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        listed.append(
            {
                "id": f"msg_{mark}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    for place, (id, name, arguments) in enumerate(said.calls):
        # A tool of a namespace is written with it: `space.tool`.
        kind, text, short = "function_call", arguments, "fc"
        if name in programs(body):
            kind, text, short = "custom_tool_call", json.loads(arguments)["input"], "ctc"
        namespace, _, name = name.rpartition(".")
        listed.append(
            {
                "id": f"{short}_{mark}n{place}",
                "type": kind,
                "status": "completed",
                "call_id": id,
                "name": name,
                CALLS[kind]: text,
                **({"namespace": namespace} if namespace else {}),
            }
        )
    return listed


def whole(number, body, said, prompt):
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + 10,
    }
    return {
        "id": f"resp_{number:08x}",
        "object": "response",
        "created_at": 1_700_000_000 + number,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": f"{body['model']}-2026",
        "output": output(number, body, said),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": body.get("store", True),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "metadata": {},
        "usage": usage,
    }


def frames(number, body, said, prompt):
    response = whole(number, body, said, prompt)
    counter = iter(range(10_000))

    def event(kind, **more):
        data = {"type": kind, "sequence_number": next(counter), **more}
        return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"

    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(response["output"]):
        yield from _item(event, index, item)
    yield event("response.completed", response=response)


def _item(event, index, item):
    at = {"item_id": item["id"], "output_index": index}
    opened = {**item, "status": "in_progress"}
    if item["type"] == "reasoning":
        opened = {**item, "summary": []}
        yield event("response.output_item.added", output_index=index, item=opened)
        part, text = item["summary"][0], item["summary"][0]["text"]
        at = {**at, "summary_index": 0}
        empty = {**part, "text": ""}
        yield event("response.reasoning_summary_part.added", **at, part=empty)
        yield event("response.reasoning_summary_text.delta", **at, delta=text)
        yield event("response.reasoning_summary_text.done", **at, text=text)
        yield event("response.reasoning_summary_part.done", **at, part=part)
    elif item["type"] == "message":
        yield event("response.output_item.added", output_index=index, item={**opened, "content": []})
        part, at = item["content"][0], {**at, "content_index": 0}
        yield event("response.content_part.added", **at, part={**part, "text": ""})
        for word in re.findall(r"\S+\s*", part["text"]):
            yield event("response.output_text.delta", **at, delta=word, logprobs=[])
        yield event("response.output_text.done", **at, text=part["text"], logprobs=[])
        yield event("response.content_part.done", **at, part=part)
    elif item["type"] == COMPACTION:
        yield event("response.output_item.added", output_index=index, item=opened)
    else:
        member = CALLS[item["type"]]
        opened = {**opened, member: ""}
        yield event("response.output_item.added", output_index=index, item=opened)
        text = item[member]
        streamed = f"response.{item['type']}_{member}"
        for place in range(0, len(text), PIECE):
            yield event(f"{streamed}.delta", **at, delta=text[place : place + PIECE])
        yield event(f"{streamed}.done", **at, **{member: text})
    yield event("response.output_item.done", output_index=index, item=item)


def too_long(prompt, window):
    message = (
        "Your input exceeds the context window of this model. Please adjust your input and try "
        f"again: {prompt} tokens > {window} maximum."
    )
    return error(400, message, "context_length_exceeded")


def error(status, message, code):
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}

"""The judges of Messages and Responses are judged: what each must refuse, and what it must let
pass."""

import pytest

import messages
import responses

USER = {"role": "user", "content": "go"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": messages.signature(0, 0, "hm")}


def says(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def use(id="call_s0h0n0"):
    return {"type": "tool_use", "id": id, "name": "grep", "input": {}}


def gives(*ids, first=()):
    results = [{"type": "tool_result", "tool_use_id": id, "content": ""} for id in ids]
    return {"role": "user", "content": [*first, *results]}


def marked(*blocks, **life):
    marker = {"cache_control": {"type": "ephemeral", **life}}
    return says(*({**block, **marker} for block in blocks))


TEXT = {"type": "text", "text": "x"}
CALL = "call_s0h0n0"
MESSAGES = {
    "text alone": ([USER], None),
    "a call and its result": ([USER, says(use()), gives(CALL)], None),
    "text behind the results": (
        [USER, says(use()), {"role": "user", "content": [*gives(CALL)["content"], TEXT]}],
        None,
    ),
    "a thought with its call": ([USER, says(THOUGHT, use()), gives(CALL)], None),
    "a system message that is last": ([USER, {"role": "system", "content": "s"}], None),
    "an assistant first": ([says(TEXT)], "first message"),
    "two assistants": ([USER, says(TEXT), says(TEXT)], "alternate"),
    "no results": ([USER, says(use()), USER], "without `tool_result`"),
    "results that nobody awaits": ([USER, gives(CALL)], "unexpected `tool_use_id`"),
    "text before the results": ([USER, says(use()), gives(CALL, first=[TEXT])], "come first"),
    "a call at the end": ([USER, says(use())], "without `tool_result`"),
    "an empty text": ([USER, says({"type": "text", "text": ""})], "non-empty"),
    "a forged thought": ([USER, says({**THOUGHT, "thinking": "no"}, TEXT)], "Invalid `signature`"),
    "a thought that moved": (
        [USER, says(THOUGHT, use("call_s1h0n0")), gives("call_s1h0n0")],
        "modified or moved",
    ),
    "a system message behind an assistant": (
        [USER, says(TEXT), {"role": "system", "content": "s"}],
        "must follow a user",
    ),
    "as many markers as may be": ([USER, marked(TEXT, TEXT, TEXT, TEXT)], None),
    "a marker too many": ([USER, marked(TEXT, TEXT, TEXT, TEXT, TEXT)], "A maximum of 4"),
    "a marker in a result": (
        [USER, says(use()), {"role": "user", "content": [{
            "type": "tool_result", "tool_use_id": CALL, "content": marked(*[TEXT] * 5)["content"],
        }]}],
        "A maximum of 4",
    ),
    "a marker on a thought": ([USER, marked(THOUGHT)], "not permitted on `thinking`"),
    "a marker on an empty text": ([USER, marked({"type": "text", "text": ""})], "empty text"),
    "an hour before minutes": (
        [{"role": "user", "content": marked(TEXT, ttl="1h")["content"]}, marked(TEXT, ttl="5m")],
        None,
    ),
    "an hour behind minutes": (
        [{"role": "user", "content": marked(TEXT)["content"]}, marked(TEXT, ttl="1h")],
        "must not come after",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(case):
    given, text = MESSAGES[case]
    found = messages.refusal({"model": "m", "max_tokens": 9, "messages": given})
    assert found is None if text is None else text in found


def call(of, **more):
    return {"type": "function_call", "call_id": of, "name": "f", "arguments": "{}", **more}


def output(id):
    return {"type": "function_call_output", "call_id": id, "output": ""}


THINKS = {"type": "reasoning", "id": "rs_s0h0", "summary": []}
# With an id of the client's own making.
SAID = {"type": "message", "id": "msg_of-its-own", "role": "assistant", "content": "x"}
RESPONSES = {
    "a string": ("go", None),
    "a call and its output": ([USER, call("a"), output("a")], None),
    "outputs in any order": ([USER, call("a"), call("b"), output("b"), output("a")], None),
    "reasoning with its call": ([USER, THINKS, call("a", id="fc_s0h0n0"), output("a")], None),
    "nothing": ([], "Missing required"),
    "no output": ([USER, call("a")], "No tool output found"),
    "no call": ([USER, output("a")], "No tool call found"),
    "a call twice": ([USER, call("a"), call("a"), output("a")], "Duplicate"),
    "reasoning alone": ([USER, THINKS], "required following item"),
    "reasoning before another's call": (
        [USER, THINKS, call("a", id="fc_s1h0n0"), output("a")],
        "required following item",
    ),
    "reasoning with a call that its client named": (
        [USER, THINKS, call(CALL, id="fc_of-its-own"), output(CALL)],
        None,
    ),
    "reasoning with a text and a call that its client named": (
        [USER, THINKS, SAID, call(CALL, id="fc_of-its-own"), output(CALL)],
        None,
    ),
    "reasoning with a text that its client named": ([USER, THINKS, SAID, USER], None),
    "reasoning before another's text and call that its client named": (
        [USER, THINKS, SAID, call("call_s0h1n0", id="fc_of-its-own"), output("call_s0h1n0")],
        "required following item",
    ),
    "a call without its reasoning": (
        [USER, call("a", id="fc_s0h0n0"), output("a")],
        "required 'reasoning' item",
    ),
}


@pytest.mark.parametrize("case", RESPONSES)
def test_responses(case):
    given, text = RESPONSES[case]
    found = responses.refusal({"model": "m", "input": given})
    assert found is None if text is None else text in found

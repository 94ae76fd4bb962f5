"""The judges of Messages and Responses are judged: what each must refuse, and what it must let
pass."""

import pytest

import bound
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


TOOL = {"name": "grep", "description": "finds", "input_schema": {"type": "object"}}
LATER = {"name": "later", "input_schema": {}, "defer_loading": True}
MORE = {"name": "more", "input_schema": {}}
BODY = {"model": "m", "system": "s", "tools": [TOOL, MORE], "max_tokens": 9}


def goes_on(hops, **more):
    """A session of some hops, each thought bound to what the provider saw before it."""
    body = {**BODY, **more, "messages": [USER]}
    for hop in range(hops):
        id, bond = f"call_s0h{hop}n0", bound.judge(body, {}).bond
        seal = messages.signature(0, hop, "hm", bond)
        body["messages"] += [says({**THOUGHT, "signature": seal}, use(id)), gives(id)]
    return body


def edited(at, content):
    """A session one message of which is another now."""
    body = goes_on(3)
    body["messages"][at] = {**body["messages"][at], "content": content}
    return body


def without(*hops):
    """A session some of whose thoughts are gone."""
    body = goes_on(3)
    for hop in hops:
        del body["messages"][1 + 2 * hop]["content"][0]
    return body


def put_back():
    """A session whose oldest thought was gone when the newest was made."""
    short = goes_on(2)
    thought = short["messages"][1]["content"].pop(0)
    made = {**THOUGHT, "signature": messages.signature(0, 2, "hm", bound.judge(short, {}).bond)}
    short["messages"] += [says(made, use("call_s0h2n0")), gives("call_s0h2n0")]
    short["messages"][1]["content"].insert(0, thought)
    return short


# What a later request holds; the paths of the thoughts that are refused, and the words.
SAME = {"type": "text", "text": " go "}
BOUND = {
    "what was sent": (goes_on(3), [], None),
    "a text as a block, with a marker": (edited(0, marked(SAME)["content"]), [], None),
    "tools in another order": ({**goes_on(3), "tools": [MORE, TOOL]}, [], None),
    "a tool for later": ({**goes_on(3), "tools": [LATER, TOOL, MORE]}, [], None),
    "other parameters": ({**goes_on(3), "max_tokens": 10, "tool_choice": {"type": "none"}}, [], None),
    "the oldest thoughts gone": (without(0, 1), [], None),
    "the newest thought gone": (without(2), [], None),
    "another model": ({**goes_on(3), "model": "n"}, [], None),
    "another system text": ({**goes_on(3), "system": "t"}, [1, 3, 5], "`system` prompt differs"),
    "a tool more": ({**goes_on(3), "tools": [TOOL, MORE, {"name": "n"}]}, [1, 3, 5], "`tools` list differs"),
    "an edited result": (edited(2, [{**gives(CALL)["content"][0], "content": "x"}]), [3, 5], "Content before"),
    "a thought between gone": (without(1), [5], "`thinking` block that preceded"),
    "a thought that came back": (put_back(), [5], "`thinking` block that preceded"),
}


@pytest.mark.parametrize("case", BOUND)
def test_bound(case):
    body, places, text = BOUND[case]
    assert messages.refusal(body) is None
    judged = bound.judge(body, {})
    assert judged.invalid == tuple(f"messages.{place}.content.0" for place in places)
    if text is None:
        assert judged.refusal is None
        return
    assert judged.refusal.startswith(f"messages.{places[0]}.content.0: Invalid `signature` in")
    assert "The block is bound to a different conversation." in judged.refusal
    assert text in judged.refusal


def test_bound_and_dropped():
    """What is dropped takes all thoughts behind it along, and the answer tells of each."""
    body = without(1)
    body["messages"] += goes_on(4)["messages"][-2:]
    binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    judged = bound.judge({**body, "thinking": binding}, {"anthropic-beta": bound.CONTROLS})
    assert (judged.refusal, judged.valid) == (None, 1)
    paths = ["messages.5.content.0", "messages.7.content.0"]
    assert [told["path"] for told in judged.told] == paths == list(judged.invalid)


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

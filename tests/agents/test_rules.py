"""The judge is judged: what `rules.py` must refuse, and what it must let pass."""

import pytest

from rules import refusal

USER = {"role": "user", "content": "go"}


def said(*ids, **more):
    calls = [
        {"id": id, "type": "function", "function": {"name": "grep", "arguments": "{}"}}
        for id in ids
    ]
    return {"role": "assistant", "tool_calls": calls, **more}


def result(id, **more):
    return {"role": "tool", "tool_call_id": id, "content": "", **more}


def tool(name, description="finds"):
    return {"type": "function", "function": {"name": name, "description": description}}


STANDS = {
    "text alone": [USER],
    "a call and its result": [USER, said("a"), result("a")],
    "parallel results in any order": [USER, said("a", "b"), result("b"), result("a"), USER],
    "an id again in a later message": [USER, said("a"), result("a"), said("a"), result("a")],
    "two assistant messages": [USER, {"role": "assistant", "content": "x"}, said("a"), result("a")],
}
REFUSED = {
    "no message": ([], "too short"),
    "a role of its own": ([{"role": "wizard", "content": "x"}], "Invalid value: 'wizard'"),
    "a result without a call": ([USER, result("a")], "must be a response to a preceeding"),
    "a call without a result": ([USER, said("a")], "did not have response messages"),
    "half of the results": ([USER, said("a", "b"), result("a"), USER], "must be followed by"),
    "a result twice": ([USER, said("a"), result("a"), result("a")], "must be a response"),
    "a result too late": ([USER, said("a"), USER, result("a")], "must be followed by"),
    "an id twice": ([USER, said("a", "a"), result("a")], "Duplicate tool call ids"),
    "no calls in a list": ([USER, said()], "too short"),
    "an empty assistant message": ([USER, {"role": "assistant", "content": ""}], "needs 'content'"),
    "an empty user message": ([{"role": "user", "content": ""}], "expected a string"),
    "a result without content": ([USER, said("a"), result("a", content=None)], "Invalid type"),
}


@pytest.mark.parametrize("case", STANDS)
def test_it_stands(case):
    assert refusal({"model": "m", "messages": STANDS[case]}) is None


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case):
    messages, text = REFUSED[case]
    assert text in refusal({"model": "m", "messages": messages})


@pytest.mark.parametrize(
    "tools, text",
    [
        ([], "too short"),
        ([{"type": "function"}], "Missing required parameter"),
        ([tool("grep"), tool("grep")], "unique"),
        ([tool("grep", "x" * 1025)], "too long"),
    ],
)
def test_tools_are_refused(tools, text):
    assert text in refusal({"model": "m", "messages": [USER], "tools": tools})


def test_tools_stand():
    tools = [tool("grep", "x" * 1024), tool("read")]
    assert refusal({"model": "m", "messages": [USER], "tools": tools}) is None
    assert "model" in refusal({"messages": [USER]})

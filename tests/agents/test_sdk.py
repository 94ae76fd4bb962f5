"""OpenAI's own client completes a tool session, and never learns that there is a proxy."""

import json
import re

import openai
import pytest

from scripts import HIDDEN, LONG_PARTS

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} of the tests",
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"} for argument in arguments},
            },
        },
    }
    for name, arguments in (
        ("grep", ["pattern"]),
        ("read_file", ["path"]),
        ("write_file", ["path", "text"]),
    )
]
SYSTEM = {"role": "system", "content": "You work on a small repository."}


def client(stand, **more):
    more = {"api_key": "sk-tests-5ecre7", "max_retries": 0, "timeout": 30, **more}
    return openai.OpenAI(base_url=stand.base_url, **more)


def run_tool(name, arguments):
    """What the client's tools answer: sizes as in real work, content that names its call."""
    if name == "read_file" and arguments["path"].startswith("long/"):
        lines = (f"{arguments['path']}:{n}: value {n * 37 % 101}" for n in range(40))
        return "\n".join(lines)
    return f"{name} {json.dumps(arguments, sort_keys=True)} done"


def ask_whole(api, messages):
    completion = api.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
    choice = completion.choices[0]
    calls = [
        (call.id, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or []
    ]
    return choice.message.content or "", calls, choice.finish_reason


def ask_streamed(api, messages):
    """Puts the answer together by hand, as agents do, and holds each chunk to the protocol."""
    text, calls, finish, roles, ids, usages = "", {}, [], 0, set(), []
    stream = api.chat.completions.create(
        model="scripted",
        messages=messages,
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        ids.add((chunk.id, chunk.created))
        if chunk.usage:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            roles += choice.delta.role is not None
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                entry = calls.setdefault(call.index, ["", "", ""])
                entry[0] += call.id or ""
                entry[1] += call.function.name or ""
                entry[2] += call.function.arguments or ""
            if choice.finish_reason:
                finish.append(choice.finish_reason)
    assert (roles, len(finish), len(ids), len(usages)) == (1, 1, 1, 1)
    assert sorted(calls) == list(range(len(calls))), "indexes are dense"
    assert usages[0].total_tokens == usages[0].prompt_tokens + usages[0].completion_tokens
    return text, [tuple(calls[index]) for index in sorted(calls)], finish[0]


def ask_helper(api, messages):
    """The SDK's own accumulator, which refuses chunks that do not fit together."""
    with api.chat.completions.stream(model="scripted", messages=messages, tools=TOOLS) as stream:
        for _ in stream:
            pass
        completion = stream.get_final_completion()
    choice = completion.choices[0]
    calls = [
        (call.id, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or []
    ]
    return choice.message.content or "", calls, choice.finish_reason


ASK = {"whole": ask_whole, "streamed": ask_streamed, "helper": ask_helper}


def work(api, ask, messages):
    """Runs one task to its end: answers every call, until a message has none. Returns the
    visible answers in order; `messages` grows as an agent's history does."""
    answers = []
    while True:
        text, calls, finish = ask(api, messages)
        assert finish == ("tool_calls" if calls else "stop")
        message = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id, name, arguments in calls
            ]
        messages.append(message)
        answers.append((text, [name for _, name, _ in calls]))
        assert HIDDEN not in json.dumps(message), "a hidden call reached the client"
        if not calls:
            return answers
        assert len({id for id, _, _ in calls}) == len(calls) and all(id for id, _, _ in calls)
        for id, name, arguments in calls:
            result = run_tool(name, json.loads(arguments))
            messages.append({"role": "tool", "tool_call_id": id, "content": result})
        assert len(answers) < 60, "the session does not end"


@pytest.mark.parametrize("ask", ASK)
def test_a_session_of_two_tasks(stand, ask):
    at = stand("sdk")
    api = client(at)
    messages = [SYSTEM, {"role": "user", "content": "[task one] Raise the timeout."}]
    first = work(api, ASK[ask], messages)
    messages.append({"role": "user", "content": "[task two] Check it."})
    second = work(api, ASK[ask], messages)

    done = "The change is written.\n\nTask one is done." if at.managed else "Task one is done."
    assert first == [
        ("Let me look.", ["grep"]),
        ("", ["read_file", "read_file"]),
        ("Found it: the timeout stands in a.toml.", ["write_file"]),
        (done, []),
    ]
    assert second == [("", ["grep"]), ("Task two is done.", [])]
    written = next(m for m in messages if "write_file" in json.dumps(m.get("tool_calls", "")))
    arguments = json.loads(written["tool_calls"][0]["function"]["arguments"])
    assert arguments["text"] == "timeout = 30 # ünïcödé ✓\n"

    sent = at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    visible = [entry["body"]["messages"] for entry in sent]
    users = [[m for m in request if m["role"] == "user"] for request in visible]
    mine = [m for m in messages if m["role"] == "user"]
    assert all(seen == mine[: len(seen)] for seen in users), "user messages go up as they are"
    if at.managed:
        upstream_saw_the_protocol(sent)
        nothing_of_the_proxy_went_up(sent)


def upstream_saw_the_protocol(sent):
    tools = [json.dumps(entry["body"]["tools"]) for entry in sent]
    assert len(set(tools)) == 1, "the tools array never changes"
    names = [tool["function"]["name"] for tool in sent[0]["body"]["tools"]]
    assert names == [HIDDEN, "recall", "grep", "read_file", "write_file"]
    # 6 visible answers, and 4 hops that held hidden calls alone.
    assert len(sent) == 10
    last = sent[-1]["body"]["messages"]
    hidden = [
        call["id"]
        for message in last
        for call in message.get("tool_calls") or []
        if call["function"]["name"] == HIDDEN
    ]
    assert len(hidden) == 7, "every hidden call stands in the history upstream"
    results = {m["tool_call_id"]: m["content"] for m in last if m["role"] == "tool"}
    assert all(results[id] for id in hidden), "and every one is answered"
    for before, after in zip(sent, sent[1:]):
        old, new = before["body"]["messages"], after["body"]["messages"]
        assert new[: len(old)] == old, "without a pass each request extends the one before"


def nothing_of_the_proxy_went_up(sent):
    for entry in sent:
        assert not [name for name in entry["headers"] if name.startswith("x-plimsoll")]


def test_a_long_session_stays_under_its_budget(stand):
    at = stand("long", "--budget", "4000")
    if not at.managed:
        pytest.skip("about the proxy")
    api = client(at)
    messages = [SYSTEM, {"role": "user", "content": "[task long] Read all parts."}]
    seen = []

    def ask(api, messages):
        raw = api.chat.completions.with_raw_response.create(
            model="scripted", messages=messages, tools=TOOLS
        )
        seen.append({k: v for k, v in raw.headers.items() if k.startswith("x-plimsoll")})
        choice = raw.parse().choices[0]
        calls = [
            (call.id, call.function.name, call.function.arguments)
            for call in choice.message.tool_calls or []
        ]
        return choice.message.content or "", calls, choice.finish_reason

    answers = work(api, ask, messages)
    assert len(answers) == LONG_PARTS + 1 and answers[-1] == ("All parts are read.", [])
    sent = at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    assert all(headers["x-plimsoll-budget"] == "met" for headers in seen)
    assert all(int(headers["x-plimsoll-context-tokens"]) <= 4000 for headers in seen)
    assert int(seen[-1]["x-plimsoll-evicted-tokens"]) > 0
    assert [int(headers["x-plimsoll-turn"]) for headers in seen] == list(range(1, LONG_PARTS + 2))
    assert len({headers["x-plimsoll-session"] for headers in seen}) == 1
    largest = max(len(json.dumps(entry["body"]["messages"])) for entry in sent)
    assert largest < len(json.dumps(messages)) / 2, "the client's history is twice what went up"
    metrics = at.metrics()
    assert re.search(r'plimsoll_passes_total\{[^}]*\} [1-9]', metrics)
    assert "plimsoll_budget_unmet_total 0" in metrics


def test_errors_reach_the_client_as_the_provider_made_them(stand):
    at = stand("sdk")
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key provided"):
        ask_whole(client(at, api_key="wrong"), [{"role": "user", "content": "[task one]"}])
    api = client(at)
    with pytest.raises(openai.BadRequestError, match="must be a response to a preceeding message"):
        orphan = {"role": "tool", "tool_call_id": "call_s0h0n0", "content": "orphan"}
        ask_whole(api, [{"role": "user", "content": "[task one]"}, orphan])
    with pytest.raises(openai.NotFoundError):
        api.embeddings.create(model="scripted", input="x")
    assert [model.id for model in api.models.list()] == ["scripted"]


def test_bad_wishes_are_refused_in_openais_shape(stand):
    at = stand("sdk")
    if not at.managed:
        pytest.skip("about the proxy")
    api = client(at)
    for header, value in (("x-plimsoll-budget", "12"), ("x-plimsoll-mode", "sometimes")):
        with pytest.raises(openai.BadRequestError) as refused:
            api.chat.completions.create(
                model="scripted",
                messages=[{"role": "user", "content": "[task one]"}],
                extra_headers={header: value},
            )
        assert header in refused.value.message
        assert refused.value.type == "invalid_request_error"
    assert at.requests() == []


def test_off_sends_what_the_client_sent(stand):
    at = stand("sdk")
    if not at.managed:
        pytest.skip("about the proxy")
    api = client(at, default_headers={"x-plimsoll-mode": "off"})
    messages = [SYSTEM, {"role": "user", "content": "[task one] Raise the timeout."}]
    work(api, ask_whole, messages)
    sent = at.requests()
    assert sent[-1]["body"]["messages"] == messages[:-1]
    assert all(entry["body"]["tools"] == TOOLS for entry in sent)


def test_the_log_holds_no_content_and_no_key(stand, request):
    at = stand("sdk", "--log", "debug")
    if not at.managed:
        pytest.skip("about the proxy")
    messages = [SYSTEM, {"role": "user", "content": "[task one] Raise the timeout."}]
    work(client(at), ask_streamed, messages)
    log = request.node.proxy_log.read_text()
    assert "gen_ai.request.model" in log
    for secret in ("5ecre7", "Raise the timeout", "ünïcödé", "a.toml", "small repository"):
        assert secret not in log

"""OpenAI's and Anthropic's own clients complete tool sessions in the other two dialects, and never
learn that there is a proxy."""

import json

import anthropic
import openai
import pytest

import messages
from scripts import HIDDEN, LONG_PARTS
from test_sdk import TOOLS, nothing_of_the_proxy_went_up, run_tool

SYSTEM = "You work on a small repository."
FUNCTIONS = [tool["function"] for tool in TOOLS]


class Responses:
    """A client of Responses that keeps its history itself, as agents do."""

    tools = [{"type": "function", "strict": False, **function} for function in FUNCTIONS]

    def __init__(self, stand, reason):
        self.api = openai.OpenAI(
            base_url=stand.base_url, api_key="sk-tests-5ecre7", max_retries=0, timeout=30
        )
        self.history = []
        self.headers = []
        more = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        self.more = more if reason else {}

    def tell(self, text):
        self.history.append({"role": "user", "content": text})

    def wishes(self):
        return {
            "model": "scripted",
            "instructions": SYSTEM,
            "input": self.history,
            "tools": self.tools,
            "store": False,
            **self.more,
        }

    def whole(self):
        raw = self.api.responses.with_raw_response.create(**self.wishes())
        self.headers.append(raw.headers)
        return raw.parse()

    def streamed(self):
        """Puts the answer together from its events, and holds them to the protocol."""
        done, numbers, opened, response = [], [], [], None
        for event in self.api.responses.create(**self.wishes(), stream=True):
            numbers.append(event.sequence_number)
            if event.type == "response.output_item.added":
                opened.append(event.output_index)
            elif event.type == "response.output_item.done":
                assert event.output_index == len(done), "every item ends, in order"
                done.append(event.item)
            elif event.type in ("response.created", "response.in_progress", "response.completed"):
                response = event.response
                self.check(response)
        assert numbers == list(range(len(numbers))), "sequence numbers are dense"
        assert opened == list(range(len(done))), "indexes are dense"
        assert [item.to_dict() for item in response.output] == [item.to_dict() for item in done]
        return response

    def helper(self):
        with self.api.responses.stream(**self.wishes()) as stream:
            for _ in stream:
                pass
            return stream.get_final_response()

    def check(self, response):
        """The response object repeats the request: it must be the client's own."""
        assert [tool.name for tool in response.tools] == [tool["name"] for tool in self.tools]
        assert response.instructions == SYSTEM

    def ask(self, how):
        response = getattr(self, how)()
        self.check(response)
        assert response.status == "completed"
        items = [item.to_dict(mode="json") for item in response.output]
        for item in items:
            item.pop("parsed", None)
            item.pop("parsed_arguments", None)
            for part in item.get("content") or []:
                part.pop("parsed", None)
        self.history += items
        calls = [i for i in response.output if i.type == "function_call"]
        return response.output_text, [(c.call_id, c.name, json.loads(c.arguments)) for c in calls]

    def results(self, results):
        for id, result in results:
            output = {"type": "function_call_output", "call_id": id, "output": result}
            self.history.append(output)


class Messages:
    """A client of Messages."""

    tools = [
        {
            "name": function["name"],
            "description": function["description"],
            "input_schema": function["parameters"],
        }
        for function in FUNCTIONS
    ]

    model = "scripted"

    def __init__(self, stand, reason):
        base = stand.base_url.removesuffix("/v1")
        self.api = anthropic.Anthropic(
            base_url=base, api_key="sk-tests-5ecre7", max_retries=0, timeout=30
        )
        self.history = []
        self.headers = []
        self.more = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if reason else {}

    def tell(self, text):
        self.history.append({"role": "user", "content": text})

    def wishes(self):
        marker = {"cache_control": {"type": "ephemeral"}}
        return {
            "model": self.model,
            "max_tokens": 2000,
            "system": [{"type": "text", "text": SYSTEM, **marker}],
            "messages": self.history,
            "tools": self.tools,
            **self.more,
        }

    def whole(self):
        raw = self.api.messages.with_raw_response.create(**self.wishes())
        self.headers.append(raw.headers)
        return raw.parse()

    def streamed(self):
        """Holds each event to the protocol, and lets the SDK put the answer together."""
        kinds, open_block, blocks = [], None, 0
        with self.api.messages.stream(**self.wishes()) as stream:
            for event in stream:
                kinds.append(event.type)
                if event.type == "content_block_start":
                    assert open_block is None and event.index == blocks, "indexes are dense"
                    open_block = event.index
                elif event.type == "content_block_stop":
                    assert event.index == open_block
                    open_block, blocks = None, blocks + 1
            message = stream.get_final_message()
        once = ("message_start", "message_delta", "message_stop")
        assert [kinds.count(kind) for kind in once] == [1, 1, 1]
        assert kinds[-1] == "message_stop" and len(message.content) == blocks
        return message

    def helper(self):
        with self.api.messages.stream(**self.wishes()) as stream:
            return stream.get_final_message()

    def ask(self, how):
        message = getattr(self, how)()
        calls = [block for block in message.content if block.type == "tool_use"]
        assert message.stop_reason == ("tool_use" if calls else "end_turn")
        blocks = [block.to_dict(mode="json") for block in message.content]
        for block in blocks:
            block.pop("parsed_output", None)
        self.history.append({"role": "assistant", "content": blocks})
        text = "".join(block.text for block in message.content if block.type == "text")
        return text, [(call.id, call.name, call.input) for call in calls]

    def results(self, results):
        blocks = [
            {"type": "tool_result", "tool_use_id": id, "content": result} for id, result in results
        ]
        self.history.append({"role": "user", "content": blocks})


class Marked(Messages):
    """One that sets no markers, for a model whose cache matches at breakpoints alone."""

    model = "claude-sonnet-4-6"

    def wishes(self):
        return {**super().wishes(), "system": SYSTEM}


CLIENTS = {"responses": Responses, "messages": Messages, "breakpoints": Marked}


def work(client, how):
    """Runs one task to its end and returns the visible answers in order."""
    answers = []
    while True:
        text, calls = client.ask(how)
        answers.append((text, [name for _, name, _ in calls]))
        assert HIDDEN not in json.dumps(client.history), "a hidden call reached the client"
        if not calls:
            return answers
        client.results([(id, run_tool(name, arguments)) for id, name, arguments in calls])
        assert len(answers) < 60, "the session does not end"


def texts_of_users(entry):
    """What users said in a request, in order."""
    body = entry["body"]
    said = []
    for message in body.get("messages") or body.get("input"):
        if message.get("role") == "user":
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            said += [part["text"] for part in parts if part["type"] in ("text", "input_text")]
    return said


@pytest.mark.parametrize("reason", [False, True], ids=["plain", "reasoning"])
@pytest.mark.parametrize("how", ["whole", "streamed", "helper"])
@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_session_of_two_tasks(stand, dialect, how, reason):
    at = stand("sdk")
    client = CLIENTS[dialect](at, reason)
    client.tell("[task one] Raise the timeout.")
    first = work(client, how)
    client.tell("[task two] Check it.")
    second = work(client, how)

    done = "The change is written.Task one is done." if at.managed else "Task one is done."
    assert first == [
        ("Let me look.", ["grep"]),
        ("", ["read_file", "read_file"]),
        ("Found it: the timeout stands in a.toml.", ["write_file"]),
        (done, []),
    ]
    assert second == [("", ["grep"]), ("Task two is done.", [])]

    sent = at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    said = ["[task one] Raise the timeout.", "[task two] Check it."]
    assert all(texts_of_users(entry) == said[: len(texts_of_users(entry))] for entry in sent)
    if at.managed:
        # 6 visible answers, and 4 hops that held hidden calls alone.
        assert len(sent) == 10
        tools = [[tool["name"] for tool in entry["body"]["tools"]] for entry in sent]
        assert tools == [[HIDDEN, "recall", "grep", "read_file", "write_file"]] * 10
        nothing_of_the_proxy_went_up(sent)
        extends(dialect, sent)


def unmarked(sent):
    """Messages as a cache compares them: all contents as blocks, without markers."""
    def bare(block):
        return {key: held for key, held in block.items() if key != "cache_control"}

    return [
        {**message, "content": [bare(block) for block in messages.blocks(message)]}
        for message in sent
    ]


def extends(dialect, sent):
    """Without a pass each request extends the one before; results may join the newest message."""
    for before, after in zip(sent, sent[1:]):
        if dialect == "responses":
            old, new = before["body"]["input"], after["body"]["input"]
        else:
            old, new = before["body"]["messages"], after["body"]["messages"]
        if dialect == "breakpoints":
            assert len(messages.marked(after["body"])) > 1, "prologue and tail"
            old, new = unmarked(old), unmarked(new)
        assert new[: len(old)] == old


def join_blocks(client, seam):
    """What was thought, then one text, then the calls."""
    blocks = client.history[-1]["content"]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    one = [{"type": "text", "text": seam.join(texts)}] if texts else []
    thought = [block for block in blocks if "thinking" in block["type"]]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    client.history[-1]["content"] = thought + one + calls


def join_items(client, seam):
    """What was thought, then one message, then the calls."""
    history = client.history
    begun = 1 + max(i for i, item in enumerate(history) if item.get("role") == "user"
                    or item["type"] == "function_call_output")
    said = [item for item in history[begun:] if item["type"] == "message"]
    thought = [item for item in history[begun:] if item["type"] == "reasoning"]
    calls = [item for item in history[begun:] if item["type"] == "function_call"]
    texts = [part["text"] for item in said for part in item["content"]]
    one = [{**said[-1], "content": [{**said[-1]["content"][0], "text": seam.join(texts)}]}] if said else []
    history[begun:] = thought + one + calls


@pytest.mark.parametrize("seam", ["", "\n"], ids=["bare", "lines"])
@pytest.mark.parametrize(
    "dialect, reason",
    [(dialect, reason) for dialect in CLIENTS for reason in (False, True)],
)
def test_a_client_that_joins_the_texts_of_an_answer(stand, dialect, reason, seam):
    at = stand("sdk")
    client = CLIENTS[dialect](at, reason)
    join, ask = join_items if dialect == "responses" else join_blocks, client.ask

    def asked(how):
        answer = ask(how)
        join(client, seam)
        return answer

    client.ask = asked
    client.tell("[task one] Raise the timeout.")
    work(client, "whole")
    client.tell("[task two] Check it.")
    assert work(client, "whole")[-1] == ("Task two is done.", [])
    sent = at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    if at.managed:
        assert len(sent) == 10
        extends(dialect, sent)
        assert "plimsoll_prefix_breaks_total 0\n" in at.metrics()


@pytest.mark.parametrize("reason", [False, True], ids=["plain", "reasoning"])
@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_long_session_stays_under_its_budget(stand, dialect, reason):
    at = stand("long", "--budget", "4000")
    if not at.managed:
        pytest.skip("about the proxy")
    client = CLIENTS[dialect](at, reason)
    client.tell("[task long] Read all parts.")
    answers = work(client, "whole")
    assert len(answers) == LONG_PARTS + 1 and answers[-1] == ("All parts are read.", [])
    sent = at.requests()
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    stayed_under(4000, client)


def stayed_under(ceiling, client):
    """Every turn of the one session was under its budget, and that took passes."""
    assert all(headers["x-plimsoll-budget"] == "met" for headers in client.headers)
    assert all(int(h["x-plimsoll-context-tokens"]) <= ceiling for h in client.headers)
    assert int(client.headers[-1]["x-plimsoll-evicted-tokens"]) > 0
    turns = [int(headers["x-plimsoll-turn"]) for headers in client.headers]
    assert turns == list(range(1, LONG_PARTS + 2))
    assert len({headers["x-plimsoll-session"] for headers in client.headers}) == 1


def test_errors_come_in_the_callers_shape(stand):
    at = stand("sdk")
    client = Messages(at, False)
    client.history = [{"role": "user", "content": ""}]
    with pytest.raises(anthropic.BadRequestError, match="non-empty content"):
        client.whole()
    if not at.managed:
        return
    wrong = {"extra_headers": {"x-plimsoll-budget": "12"}}
    client = Messages(at, False)
    client.tell("[task one]")
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.api.messages.create(**client.wishes(), **wrong)
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert "x-plimsoll-budget" in refused.value.body["error"]["message"]
    client = Responses(at, False)
    client.tell("[task one]")
    with pytest.raises(openai.BadRequestError, match="x-plimsoll-budget"):
        client.api.responses.create(**client.wishes(), **wrong)

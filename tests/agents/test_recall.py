"""What `recall` brings back, and what stands below a result that refers to what left, before a
provider that refuses what real ones refuse: pictures in each dialect's form, whole and streamed."""

import base64
import json
import struct
import threading

import httpx
import pytest

from fake_provider import DIALECTS, Handler, Provider
from scripts import Said

FILES = 16
BUDGET = "8000"
UNCHANGED = (
    "File unchanged since last read. The content from the earlier Read tool_result in this "
    "conversation is still current — refer to that instead of re-reading."
)
# The beginning of a PNG of 1,100 by 1,000, which is all that is read of one.
HEAD = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 1_100, 1_000) + b"\x08\x02\0\0\0"
PICTURE = base64.b64encode(HEAD + bytes(3_000)).decode()
PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}


class Scripted(Handler):
    """Plays the calls that the server has in place of a script, one with each answer."""

    def play(self, dialect, number, body, entry, judged):
        calls = self.server.calls
        said = calls.pop(0) if calls else None
        listed = [(f"call_{number}", *said)] if said else []
        answer = Said(step=number, hop=0, text="" if said else "Done.", calls=listed)
        if not body.get("stream"):
            self.reply(200, dialect.whole(number, body, answer, 1_000))
            return
        self.stream(number, dialect.frames(number, body, answer, 1_000), cut=None)


class Client:
    """An agent of one dialect that keeps its history itself, streamed or not."""

    def __init__(self, base_url, dialect, stream):
        self.url = f"{base_url}/{PATHS[dialect]}"
        self.dialect, self.stream, self.history = dialect, stream, []

    def tell(self, text, picture=None):
        self.history.append({"role": "user", "content": [self.text(text), picture] if picture else text})

    def text(self, text):
        return {"type": "input_text" if self.dialect == "responses" else "text", "text": text}

    def picture(self):
        url = f"data:image/png;base64,{PICTURE}"
        if self.dialect == "chat":
            return {"type": "image_url", "image_url": {"url": url}}
        if self.dialect == "responses":
            return {"type": "input_image", "image_url": url}
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        return {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}

    def body(self):
        schema = {"type": "object", "properties": {"file_path": {"type": "string"}}}
        function = {"name": "Read", "description": "Reads a file."}
        if self.dialect == "messages":
            tool = {**function, "input_schema": schema}
            return {"model": "m", "max_tokens": 900, "messages": self.history, "tools": [tool]}
        if self.dialect == "responses":
            tool = {"type": "function", "strict": False, **function, "parameters": schema}
            return {"model": "m", "input": self.history, "tools": [tool], "store": False}
        tool = {"type": "function", "function": {**function, "parameters": schema}}
        return {"model": "m", "messages": self.history, "tools": [tool]}

    def ask(self):
        """Sends the history, and keeps the answer, which is read from an unstreamed one: that the
        streams are whole is judged elsewhere."""
        headers = {"authorization": "Bearer k", "x-api-key": "k", "x-plimsoll-session": self.dialect}
        body = {**self.body(), "stream": self.stream}
        answer = httpx.post(self.url, json=body, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return self.keep(joined(self.dialect, answer.text) if self.stream else answer.json())

    def keep(self, answer):
        """The calls of an answer, id and arguments."""
        if self.dialect == "chat":
            message = answer["choices"][0]["message"]
            self.history.append({key: value for key, value in message.items() if value is not None})
            calls = message.get("tool_calls") or []
            return [(call["id"], call["function"]["arguments"]) for call in calls]
        if self.dialect == "responses":
            self.history += answer["output"]
            calls = [item for item in answer["output"] if item["type"] == "function_call"]
            return [(call["call_id"], call["arguments"]) for call in calls]
        self.history.append({"role": "assistant", "content": answer["content"]})
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        return [(call["id"], json.dumps(call["input"])) for call in calls]

    def result(self, id, text, picture=None):
        parts = [self.text(text), picture] if picture else text
        if self.dialect == "chat":
            self.history.append({"role": "tool", "tool_call_id": id, "content": text})
        elif self.dialect == "responses":
            self.history.append({"type": "function_call_output", "call_id": id, "output": parts})
        else:
            block = {"type": "tool_result", "tool_use_id": id, "content": parts}
            self.history.append({"role": "user", "content": [block]})


def joined(dialect, stream):
    """The answer that a stream holds, as far as a history needs it."""
    events = [line[6:] for line in stream.splitlines() if line.startswith("data: {")]
    events = [json.loads(event) for event in events]
    if dialect == "responses":
        return [event for event in events if event["type"] == "response.completed"][-1]["response"]
    if dialect == "messages":
        return {"content": blocks(events)}
    message = {"role": "assistant", "content": "", "tool_calls": []}
    for delta in (choice["delta"] for event in events for choice in event["choices"]):
        message["content"] += delta.get("content") or ""
        for call in delta.get("tool_calls") or []:
            if "id" in call:
                message["tool_calls"].append(call)
            else:
                part = call["function"]["arguments"]
                message["tool_calls"][call["index"]]["function"]["arguments"] += part
    if not message["tool_calls"]:
        del message["tool_calls"]
    return {"choices": [{"message": message}]}


def blocks(events):
    found = {}
    for event in events:
        if event["type"] == "content_block_start":
            found[event["index"]] = {**event["content_block"], "json": ""}
        elif event["type"] == "content_block_delta":
            block, delta = found[event["index"]], event["delta"]
            block["json"] += delta.get("partial_json", "")
            if "text" in delta:
                block["text"] += delta["text"]
    for block in found.values():
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text or "{}")
    return list(found.values())


def read(path):
    return ("Read", json.dumps({"file_path": path}))


@pytest.fixture
def provider():
    server = Provider(None)
    server.RequestHandlerClass = Scripted
    server.calls = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", PATHS)
def test_nothing_that_comes_back_is_refused(provider, stand, request, dialect, stream):
    if request.config.getoption("--direct"):
        pytest.skip("about the proxy")
    at = stand(None, "--budget", BUDGET, upstream=provider.base_url())
    client = Client(at.base_url, dialect, stream)
    paths = ["/screen", *(f"/src/{number}.rs" for number in range(FILES)), "/src/0.rs"]
    provider.calls = [read(path) for path in paths]
    client.tell("Look at the screen, and read the files.")
    for place, path in enumerate(paths):
        [(id, arguments)] = client.ask()
        assert json.loads(arguments) == {"file_path": path}
        if place == 0:
            # Results of Chat Completions are texts: its agents show a picture behind them.
            shown = None if dialect == "chat" else client.picture()
            client.result(id, "the screen:", shown)
            if dialect == "chat":
                client.tell("Here it is.", client.picture())
        elif place <= FILES:
            lines = [f"let value_{place}_{line} = {line * 7919 + place};" for line in range(90)]
            client.result(id, "\n".join(lines))
        else:
            client.result(id, UNCHANGED)
    assert client.ask() == []
    sent = [json.dumps(entry["body"], ensure_ascii=False) for entry in provider.recorded()]
    assert "[this refers to Read:" in sent[-1]
    assert (PICTURE in sent[-1]) == (dialect == "chat"), "a pass took it, unless the user said it"
    provider.calls = [("recall", json.dumps({"id": "/screen"}))]
    client.tell("What was on the screen?")
    assert client.ask() == []
    newest = provider.recorded()[-1]["body"]
    assert json.dumps(newest).count(PICTURE) == 1
    assert "recalled Read:" in json.dumps(newest)
    assert [entry["refusal"] for entry in provider.recorded()] == [None] * len(provider.recorded())
    assert "recalled" not in json.dumps(client.history)


def test_the_provider_would_refuse_a_picture_where_none_may_stand():
    picture = [{"type": "image_url", "image_url": {"url": "data:"}}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": picture},
    ]
    chat = DIALECTS["/v1/chat/completions"]
    assert "Supported values" in chat.refusal({"model": "m", "messages": messages})

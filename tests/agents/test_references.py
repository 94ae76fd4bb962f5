"""Clients of Responses that leave out what was said before, and name it: by the response that they go
on from, or item by item. The provider has kept nothing, and is sent all of it all the same."""

import json

import openai
import pytest

from scripts import HIDDEN, LONG_PARTS
from test_dialects import Responses, extends, stayed_under, texts_of_users, work
from test_sdk import nothing_of_the_proxy_went_up

DONE = "The change is written.Task one is done."
FIRST = [
    ("Let me look.", ["grep"]),
    ("", ["read_file", "read_file"]),
    ("Found it: the timeout stands in a.toml.", ["write_file"]),
    (DONE, []),
]
SECOND = [("", ["grep"]), ("Task two is done.", [])]
SAID = ["[task one] Raise the timeout.", "[task two] Check it."]


class Stored(Responses):
    """One that asks for its responses to be stored, and so gets no sealed reasoning."""

    def __init__(self, stand, reason):
        super().__init__(stand, reason)
        self.more = {"reasoning": {"summary": "auto"}} if reason else {}

    def wishes(self):
        wishes = super().wishes()
        del wishes["store"]
        return wishes

    def check(self, response):
        super().check(response)
        assert response.previous_response_id == self.wishes().get("previous_response_id")


class Chained(Stored):
    """One that sends what is new, and the id of the response before."""

    previous = None

    def wishes(self):
        more = {"previous_response_id": self.previous} if self.previous else {}
        return super().wishes() | more

    def check(self, response):
        super().check(response)
        self.newest = response.id

    def ask(self, how):
        answer = super().ask(how)
        self.previous = self.newest
        self.history = []
        return answer


class Naming(Stored):
    """One that names each item of the model's in the place of sending it."""

    def ask(self, how):
        sent = len(self.history)
        answer = super().ask(how)
        for place, item in enumerate(self.history[sent:], sent):
            self.history[place] = {"type": "item_reference", "id": item["id"]}
        return answer


CLIENTS = {"chained": Chained, "naming": Naming}


def nothing_was_left_out(sent):
    assert [entry["refusal"] for entry in sent] == [None] * len(sent)
    assert not any("previous_response_id" in entry["body"] for entry in sent)
    assert not any("item_reference" in json.dumps(entry["body"]) for entry in sent)


@pytest.mark.parametrize("reason", [False, True], ids=["plain", "reasoning"])
@pytest.mark.parametrize("how", ["whole", "streamed", "helper"])
@pytest.mark.parametrize("way", CLIENTS)
def test_a_session_of_two_tasks(stand, way, how, reason):
    at = stand("sdk")
    if not at.managed:
        pytest.skip("about the proxy")
    client = CLIENTS[way](at, reason)
    client.tell(SAID[0])
    assert work(client, how) == FIRST
    client.tell(SAID[1])
    assert work(client, how) == SECOND

    sent = at.requests()
    nothing_was_left_out(sent)
    assert all(texts_of_users(entry) == SAID[: len(texts_of_users(entry))] for entry in sent)
    assert texts_of_users(sent[-1]) == SAID
    # 6 visible answers, and 4 hops that held hidden calls alone.
    assert len(sent) == 10
    tools = [[tool["name"] for tool in entry["body"]["tools"]] for entry in sent]
    assert tools == [[HIDDEN, "recall", "grep", "read_file", "write_file"]] * 10
    nothing_of_the_proxy_went_up(sent)
    extends("responses", sent)
    assert not any("x-plimsoll-unmanaged" in headers for headers in client.headers)


@pytest.mark.parametrize("reason", [False, True], ids=["plain", "reasoning"])
@pytest.mark.parametrize("way", CLIENTS)
def test_a_long_session_stays_under_its_budget(stand, way, reason):
    at = stand("long", "--budget", "4000")
    if not at.managed:
        pytest.skip("about the proxy")
    client = CLIENTS[way](at, reason)
    client.tell("[task long] Read all parts.")
    answers = work(client, "whole")
    assert len(answers) == LONG_PARTS + 1 and answers[-1] == ("All parts are read.", [])
    nothing_was_left_out(at.requests())
    stayed_under(4000, client)


def test_what_was_never_served_is_the_providers(stand):
    at = stand("sdk")
    client = Chained(at, False)
    client.tell(SAID[0])
    client.previous = "resp_elsewhere"
    with pytest.raises(openai.BadRequestError, match="resp_elsewhere") as refused:
        client.whole()
    named = {"type": "item_reference", "id": "msg_elsewhere"}
    client = Naming(at, False)
    client.history = [named]
    with pytest.raises(openai.BadRequestError, match="msg_elsewhere") as unnamed:
        client.whole()
    if at.managed:
        why = [raised.value.response.headers["x-plimsoll-unmanaged"] for raised in (refused, unnamed)]
        assert why == ["previous_response_id", "item_reference"]
        bodies = [entry["body"] for entry in at.requests()]
        assert bodies[0]["previous_response_id"] == "resp_elsewhere"
        assert bodies[1]["input"] == [named]

"""LiteLLM's real guardrail before Plimsoll's listener, to a scripted provider: what it sends is understood, what it gets
keeps the prefix, and what the model asks for comes back. `tests/gateway/run` runs it."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import gateway
import environments
import tokens
from provider import Provider

BINARY = pathlib.Path(os.environ.get("PLIMSOLL_BIN", gateway.HERE.parents[1] / "target/debug/plimsoll")).resolve()
TOOL = "headroom_retrieve"
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}]
BUDGET = 2_000


class Asking(Provider):
    """A provider whose model asks for an original, as soon as it is told how, if `asks` is set."""

    asks = False

    def taken(self, body, began):
        told = json.dumps(body)
        if self.asks and TOOL in json.dumps(body.get("tools") or []) and "call_back" not in told:
            found = told.split("hash=")[1][:24]
            call = {"id": "call_back", "type": "function", "function": {"name": TOOL, "arguments": json.dumps({"hash": found})}}
            kept, self.reply = self.reply, {"role": "assistant", "content": None, "tool_calls": [call]}
            try:
                return super().taken(body, began)
            finally:
                self.reply = kept
        return super().taken(body, began)


def result(place):
    return "".join(f"result {place}, line {line}: some words that a tool said\n" for line in range(60))


def turns(users):
    """Histories of a session that grows by a call and its result, and now and then by a user."""
    history = [{"role": "system", "content": "You are an agent."}]
    for place in range(30):
        if place % (30 // users) == 0:
            history.append({"role": "user", "content": f"Please do part {place}. " + "It matters. " * 40})
            yield list(history)
        call = {"id": f"call_{place}", "type": "function", "function": {"name": "read", "arguments": f'{{"n":{place}}}'}}
        history += [{"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": f"call_{place}", "content": result(place)}]
        yield list(history)


class Guardrail:
    """The tests, for one version of LiteLLM."""

    version = None

    @classmethod
    def setUpClass(cls):
        try:
            gateway.litellm(cls.version)
        except environments.Missing as why:
            raise unittest.SkipTest(f"LiteLLM can't be had: {why}") from None
        Listener, LiteLLM, _ = gateway.processes()
        cls.out = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.out.cleanup)
        cls.provider = Asking(tokens.Sizer(lambda text: len(text) // 4))
        cls.listener = Listener(BINARY, BUDGET)
        cls.gateway = LiteLLM(cls.version, [cls.listener])
        for one in (cls.listener, cls.gateway):
            cls.addClassCleanup(one.stop)
            one.start(cls.provider, pathlib.Path(cls.out.name))

    def played(self, name, users, asks=False):
        """Plays a session, and gives what the provider was sent, hop by hop, with the last history."""
        import play

        speaker = play.Speaker(self.gateway.port, {"x-litellm-session-id": f"session-{name}"})
        sent, hops = gateway.Sent({}), []
        for history in turns(users):
            self.provider.expect({"role": "assistant", "content": "done"})
            self.provider.asks = asks
            texts = [json.dumps(one) for one in history]
            status, _ = speaker.post(gateway.body(texts, TOOLS, [self.listener.kind]))
            self.assertEqual(status, 200)
            sent.add(self.provider.hops[0], history, self.provider.sizer)
            hops += self.provider.hops
        speaker.connection.close()
        return sent, hops

    def test_the_prefix_breaks_in_passes_alone(self):
        for users in (1, 5):
            with self.subTest(users=users):
                sent, _ = self.played(f"prefix-{users}", users)
                self.assertGreater(sent.passes, 2)
                self.assertEqual((sent.unexplained, sent.breaks), (0, sent.passes))
                self.assertEqual(sent.others, 0)

    def test_the_model_gets_an_original_back(self):
        _, hops = self.played("back", 1, asks=True)
        back = [one["content"] for hop in hops for one in hop.messages if one.get("tool_call_id") == "call_back"]
        self.assertTrue(back)
        originals = {result(place) for place in range(30)}
        for text in back:
            self.assertIn(text, originals)


class Older(Guardrail, unittest.TestCase):
    version = gateway.VERSIONS[0]


class Newest(Guardrail, unittest.TestCase):
    version = gateway.VERSIONS[1]


if __name__ == "__main__":
    sys.exit(unittest.main())

"""The checker, the arms that need no proxy, the marks, and what counts as said.

    python -m unittest discover -s tests/beside
"""

import json
import unittest

import sources
import views
from checker import problems, untouched
from marks import Marker
from play import turns
from provider import asked_to_mark
from tokens import Sizer, identity

SYSTEM = {"role": "system", "content": "be good"}


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def call(*ids, name="read", arguments="{}"):
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": one, "type": "function", "function": {"name": name, "arguments": arguments}} for one in ids]}


def result(known, text="ok"):
    return {"role": "tool", "tool_call_id": known, "content": text}


def letters():
    """A sizer to which a letter is a token."""
    return Sizer(len)


class Checker(unittest.TestCase):
    def test_a_valid_history(self):
        self.assertEqual(problems([SYSTEM, user("go"), call("a", "b"), result("b"), result("a"), answer("done")]), [])

    def test_what_is_refused(self):
        table = [
            ([SYSTEM], ["no message"]),
            ([SYSTEM, result("a")], ["begins with a result", "result without a call"]),
            ([user("go"), result("a")], ["result without a call"]),
            ([user("go"), call("a"), user("stop")], ["call without a result"]),
            ([user("go"), call("a")], ["call without a result"]),
            ([user("go"), call("a"), result("a"), answer("so"), result("a")], ["result without a call"]),
            ([user("go"), call("a"), result("a"), result("a")], ["two results of one call"]),
            ([user("go"), call("a", "a"), result("a")], ["two calls of one id"]),
            ([user("")], ["empty content"]),
            ([user("go"), answer(None)], ["empty content"]),
            ([user("go"), call("a"), result("a", "")], ["empty content"]),
            ([{"role": "user", "content": []}], ["empty content"]),
            ([{"role": "oracle", "content": "x"}, user("go")], ["unknown role"]),
        ]
        for messages, found in table:
            self.assertEqual(problems(messages), found, messages)

    def test_texts_of_users_stay_in_their_order(self):
        sent = [SYSTEM, user("one"), answer("yes"), user("two")]
        self.assertEqual(untouched(sent, sent), (0, True))
        self.assertEqual(untouched(sent, [SYSTEM, user("two"), user("one")])[0], 1)
        self.assertEqual(untouched(sent, [SYSTEM, user("one"), user("two, briefly")])[0], 1)
        self.assertEqual(untouched(sent, [SYSTEM, user("two")])[0], 1)

    def test_a_proxy_may_write_behind_the_system_text(self):
        sent = [SYSTEM, user("one")]
        self.assertTrue(untouched(sent, [{**SYSTEM, "content": "be good, and brief"}, user("one")])[1])
        self.assertFalse(untouched(sent, [{**SYSTEM, "content": "be"}, user("one")])[1])
        self.assertFalse(untouched(sent, [user("one")])[1])


class Views(unittest.TestCase):
    def history(self, count):
        """As many calls of ten letters each with their results of a hundred."""
        messages = [SYSTEM, user("go")]
        for number in range(count):
            messages += [call(f"c{number}"), result(f"c{number}", f"{number}" * 100)]
        return messages

    def test_truncation_keeps_pairs_whole(self):
        sizer, history = letters(), self.history(5)
        for budget in range(20, sizer.request(history, []), 7):
            view = views.Truncation(sizer, budget).view(history, [])
            self.assertEqual(view[0], SYSTEM)
            self.assertEqual(problems(view), [])
            self.assertTrue(sizer.request(view, []) <= budget or len(view) == 3, budget)
        self.assertEqual(views.Truncation(sizer, sizer.request(history, [])).view(history, []), history)

    def test_clearing_waits_for_its_trigger(self):
        sizer, history = letters(), self.history(5)
        size = sizer.request(history, [])
        self.assertEqual(views.Clearing(sizer, size).view(history, []), history)
        self.assertEqual(self.cleared(views.Clearing(sizer, size - 1).view(history, [])), [0, 1])

    def test_clearing_keeps_the_newest_and_what_is_excluded(self):
        sizer, history = letters(), self.history(5)
        self.assertEqual(self.cleared(views.Clearing(sizer, 1, keep=1).view(history, [])), [0, 1, 2, 3])
        self.assertEqual(views.Clearing(sizer, 1, exclude=("read",)).view(history, []), history)

    def test_clearing_does_nothing_for_too_little(self):
        sizer, history = letters(), self.history(5)
        gain = 2 * (100 - len(views.PLACEHOLDER))
        self.assertEqual(self.cleared(views.Clearing(sizer, 1, at_least=gain).view(history, [])), [0, 1])
        self.assertEqual(views.Clearing(sizer, 1, at_least=gain + 1).view(history, []), history)

    def test_held_clearing_waits_until_the_rest_is_above_the_trigger(self):
        sizer = letters()
        trigger = sizer.request(self.history(5), []) - 1
        held, anew = views.Clearing(sizer, trigger, held=True), views.Clearing(sizer, trigger)
        found = []
        for count in range(4, 9):
            history = self.history(count)
            found.append((self.cleared(held.view(history, [])), self.cleared(anew.view(history, []))))
        self.assertEqual(found, [([], []), ([0, 1], [0, 1]), ([0, 1], [0, 1, 2]), ([0, 1, 2, 3], [0, 1, 2, 3]),
                                 ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])])

    @staticmethod
    def cleared(view):
        results = [one for one in view if one["role"] == "tool"]
        return [place for place, one in enumerate(results) if one["content"] == views.PLACEHOLDER]


class Marks(unittest.TestCase):
    def test_exploration_ends_at_the_first_write_and_the_change_depends_on_it(self):
        marker, found = Marker(), []
        turns = [(True, "Read"), (False, "Grep"), (False, "Edit"), (False, "TodoWrite"), (True, "Write"),
                 (False, "Read")]
        for number, (asked, name) in enumerate(turns):
            marks = marker.marks(number, asked, [(name, "{}")])
            found.append([json.loads(one["function"]["arguments"]) for one in marks])
        end = {"action": "end"}
        self.assertEqual(found, [
            [{"action": "start", "type": "expl", "name": "look-1"}],
            [],
            [{**end, "description": "looked around before the next change"},
             {"action": "start", "type": "act", "name": "change-2", "dependencies": ["look-1"]}],
            [],
            [end, {"action": "start", "type": "act", "name": "change-3", "dependencies": []}],
            [end, {"action": "start", "type": "expl", "name": "look-4"}],
        ])

    def test_a_model_marks_only_when_it_is_asked_to(self):
        tools = [{"type": "function", "function": {"name": "delimiter"}}]
        guided = {"role": "system", "content": "mark your work with delimiter"}
        self.assertTrue(asked_to_mark([guided, user("go")], tools))
        self.assertFalse(asked_to_mark([SYSTEM, user("use delimiter")], tools))
        self.assertFalse(asked_to_mark([guided], []))


class Said(unittest.TestCase):
    def test_distinctive_strings(self):
        text = "the src/main.rs of someName is 123456, see abcdefgh and v1.2"
        self.assertEqual(sources.strings(text), {"src/main.rs", "someName", "123456"})

    def test_what_was_said_and_is_in_view(self):
        needed = call("a", arguments=json.dumps({"path": "src/main.rs", "old": "fn some_thing", "count": 3}))
        history = sources.spoken([user("see src/main.rs"), answer("fn some_thing, 3 times")])
        self.assertEqual(sources.needs(history, "src/main.rs", needed), (2, 1))
        self.assertEqual(sources.values(history, "src/main.rs", needed, []), (3, 1, 1))
        recall = [{"type": "function", "function": {"name": "recall"}}]
        self.assertEqual(sources.values(history, "src/main.rs", needed, recall), (3, 1, 3))

    def test_turns_begin_with_the_user(self):
        messages = [answer("hello"), user("go"), call("a"), result("a"), answer("done")]
        self.assertEqual([(place, asked) for place, _, asked in turns(messages)], [(2, True), (4, False)])

    def test_a_breakpoint_makes_no_other_message(self):
        marked = {"role": "user", "content": [
            {"type": "text", "text": "go", "prompt_cache_breakpoint": {"mode": "explicit"}}]}
        self.assertEqual(identity(user("go")), identity(marked))
        self.assertNotEqual(identity(user("go")), identity(user("stop")))


if __name__ == "__main__":
    unittest.main()

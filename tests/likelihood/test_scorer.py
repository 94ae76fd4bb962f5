"""What the scorer computes, without a model: `python -m unittest discover tests/likelihood`, a second.

A toy takes a model's place whose likelihoods follow from a hash of all that it has read, so that one
token too few or too many shows.
"""

import hashlib
import io
import json
import math
import unittest

import figures
import report
import score
import text
from engine import Reader, cuts, resumed


class Toy:
    """A model with a sliding window, which can go back to its marks alone."""

    window = 10_000

    def __init__(self):
        self.have, self.marks, self.count = [], [], 0

    def tokens(self, told, markup=False, begins=False):
        return [ord(c) for c in told]

    def length(self, token):
        return len(chr(token).encode())

    def keep(self, length):
        if length < len(self.have):
            self.marks = [mark for mark in self.marks if mark <= length]
            self.have = self.have[: self.marks[-1] if self.marks else 0]
        return len(self.have)

    def mark(self):
        self.marks.append(len(self.have))

    def read(self, tokens, following):
        out = []
        for token, after in zip(tokens, following):
            self.have.append(token)
            self.count += 1
            out.append(self.likelihood(after) if after >= 0 else 0.0)
        return out

    def likelihood(self, token):
        told = hashlib.sha256(json.dumps([*self.have, token]).encode()).digest()
        return -(1 + told[0]) / 100


def fresh(context, answer):
    return Reader(Toy()).score(context, answer)[0]


class Reading(unittest.TestCase):
    def test_what_was_kept_changes_no_likelihood(self):
        texts = [
            ("the task and then a long read", " edit one"),
            ("the task and then a long read edit one done", " edit two"),
            ("the task and nothing", " edit one"),
            ("the task and nothing edit one more", " edit three"),
            ("another", " answer"),
            ("another", " answer"),
        ]
        coded = [([ord(c) for c in a], [ord(c) for c in b]) for a, b in texts]
        coded.sort(key=lambda pair: pair[0] + pair[1])
        toy = Toy()
        reader = Reader(toy)
        for at, (context, answer) in enumerate(coded):
            found, read = reader.score(context, answer, cuts(coded, at))
            self.assertEqual(found, fresh(context, answer), coded[at])
            self.assertEqual(len(found), len(answer))
            self.assertLessEqual(len(answer), read)
        whole = sum(len(a) + len(b) - 1 for a, b in coded)
        self.assertLess(toy.count, whole * 0.6, "what both texts have was read twice")

    def test_a_state_is_kept_for_each_text_that_parts_from_this_one(self):
        texts = [([1, 2, 3, 4], [5]), ([1, 2, 3, 9], [5]), ([1, 2, 3, 9, 9], [5]), ([1, 7], [5]), ([8], [5])]
        self.assertEqual(cuts(texts, 0), {3, 1, 0})
        self.assertEqual(cuts(texts, 1), {4, 1, 0})
        self.assertEqual(cuts(texts, 4), set())

    def test_the_last_of_the_context_is_always_read(self):
        self.assertEqual(resumed([1, 2, 3, 4, 5], [1, 2, 3], [4]), 2)
        self.assertEqual(resumed([1, 2, 9], [1, 2, 3], [4]), 2)
        self.assertEqual(resumed([], [1, 2, 3], [4]), 0)


def view(policy, turn=3, told="a file", says="edit file now", **more):
    messages = [{"role": "user", "content": told}]
    answer = {"role": "assistant", "content": says}
    return {
        "session": "s",
        "turn": turn,
        "block": 0,
        "policy": policy,
        "messages": messages,
        "answer": answer,
        "tokens": 10,
        "measures": {"K": [1, 2]},
        "strings": {"shown": [], "indexed": [], "hidden": []},
        **more,
    }


class Scoring(unittest.TestCase):
    def run_once(self, views, done):
        out, toy = io.StringIO(), Toy()
        rows = list(score.score(toy, Reader(toy), views, done, out, 5, "plain"))
        return rows, [json.loads(line) for line in out.getvalue().splitlines()]

    def test_what_is_scored_is_not_scored_again_whoever_sent_it(self):
        views = [view("none"), view("cwl", told="less"), view("recency", told="less")]
        done = {}
        rows, written = self.run_once(views, done)
        self.assertEqual([row["policy"] for row in rows], ["none", "cwl"])
        self.assertEqual(rows, written)
        self.assertTrue(all(len(row["lp"]) == 5 == len(row["bytes"]) for row in rows))
        self.assertEqual(self.run_once(views, done)[0], [])
        self.assertEqual(len(self.run_once([view("none", turn=3, says="other words")], done)[0]), 1)

    def test_a_view_that_is_too_long_is_told(self):
        rows, _ = self.run_once([view("none", told="x" * 10_001)], {})
        self.assertIn("error", rows[0])

    def test_blocks_follow_each_other_whichever_file_they_come_from(self):
        views = [view(policy, turn, block=block) for policy in ("none", "cwl") for block, turn in ((0, 3), (1, 9))]
        found = [[(v["policy"], v["turn"]) for v in block] for block in score.blocks(views)]
        self.assertEqual(found, [[("none", 3), ("cwl", 3)], [("none", 9), ("cwl", 9)]])

    def test_parts_share_the_sessions(self):
        views = [view("none", session=name) for name in "abcab"]
        halves = [[v["session"] for v in score.part(views, f"{half}/2")] for half in (1, 2)]
        self.assertEqual(halves, [["a", "c", "a"], ["b", "b"]])

    def test_turns_are_chosen_whole(self):
        views = [view(policy, turn) for turn in (3, 5) for policy in ("none", "cwl", "recency")]
        kept = score.chosen(views, "none,cwl", 1)
        self.assertEqual([(v["turn"], v["policy"]) for v in kept], [(3, "none"), (3, "cwl")])

    def test_turns_with_a_longer_history_are_left_out(self):
        views = [view(policy, turn) for turn in (3, 5, 7) for policy in ("none", "cwl")]
        for one, tokens in zip(views, (900, 20, 500, 20, 500, 20)):
            one["tokens"] = tokens
        kept = score.chosen(views, None, 1, 500)
        self.assertEqual([(v["turn"], v["policy"]) for v in kept], [(5, "none"), (5, "cwl")])


class Texts(unittest.TestCase):
    def test_a_longer_history_begins_with_the_shorter(self):
        messages = [
            {"role": "user", "content": "task"},
            {"role": "assistant", "content": "so", "tool_calls": [{"id": "a", "function": {"name": "Read", "arguments": '{"path": "a\\nb"}'}}]},
            {"role": "tool", "tool_call_id": "a", "content": "told"},
        ]
        for form in text.FORMS:
            before = text.view(messages[:1], form)
            behind = text.view(messages, form)
            self.assertEqual(behind[: len(before)], before, form)
            self.assertEqual(behind[len(before)][0], text.answer(messages[1]))
        self.assertEqual(text.answer(messages[1]), "so\n[call] Read\npath: a\nb\n")

    def test_kinds_follow_the_tools(self):
        for name, kind in (("Edit", "edit"), ("str_replace_editor", "edit"), ("Read", "read"), ("Grep", "search"), ("Bash", "run"), ("Task", "call")):
            call = {"function": {"name": name, "arguments": "{}"}}
            self.assertEqual(text.kind({"tool_calls": [call]}), kind, name)
        self.assertEqual(text.kind({"content": "done"}), "text")


class Figures(unittest.TestCase):
    def test_ranks_and_their_correlation(self):
        self.assertEqual(figures.ranks([3, 1, 3, 2]), [2.5, 0, 2.5, 1])
        self.assertAlmostEqual(figures.rank_correlation([1, 2, 3], [10, 20, 5]), -0.5)
        # As a textbook has it: with ties.
        self.assertAlmostEqual(figures.rank_correlation([1, 2, 2, 4], [1, 3, 2, 4]), 0.9486832980505138)
        self.assertIsNone(figures.rank_correlation([1, 1], [1, 2]))

    def test_sessions_are_drawn_whole(self):
        # Two sessions of ten equal turns say no more than two turns.
        low, high = figures.resampled([0.0] * 10 + [1.0] * 10, ["a"] * 10 + ["b"] * 10)
        self.assertEqual((low, high), (0.0, 1.0))
        low, high = figures.resampled([0.0, 1.0] * 50, range(100))
        self.assertTrue(0.38 < low < 0.42 and 0.58 < high < 0.62, (low, high))

    def test_a_token_belongs_to_the_longest_string_that_it_stands_in(self):
        strings = {"shown": ["src/lib.rs"], "hidden": ["lib.rs"], "indexed": ["ünïcode"]}
        # "at src/lib.rs, lib.rs ünïcode"
        lengths = [3, 4, 6, 2, 6, 1, 9]
        found = figures.classes("at src/lib.rs, lib.rs ünïcode", lengths, strings)
        self.assertEqual(found, [None, "shown", "shown", None, "hidden", None, "indexed"])

    def test_measures_rank_views_within_a_turn(self):
        turns = [("a", [(1, 3), (2, 2), (3, 1)]), ("b", [(1, 1), (2, 2), (3, 3)]), ("c", [(1, 1), (1, 2), (1, 3)])]
        mean, low, high, count = figures.within_turns(turns, lambda v: v[0], lambda v: v[1])
        self.assertEqual((mean, low, high, count), (0.0, -1.0, 1.0, 2))


class Report(unittest.TestCase):
    def test_turns_count_once_all_their_views_are_scored(self):
        views = [view("none", told="all of it"), view("cwl", told="less"), view("none", turn=5), view("cwl", turn=5, told="x")]
        scores = {}
        for one, lp in ((views[0], [-1.0, -1.0]), (views[1], [-1.5, -2.0]), (views[2], [-1.0])):
            key = score.digest(one, "plain", 220)
            scores[key] = {"key": key, "lp": lp, "bytes": [4, 9], "size": 7}
        done = report.turns(views, scores, 220, "none")
        self.assertEqual(len(done), 1)
        self.assertTrue(math.isclose(done[0]["cwl"]["delta"], 0.75))
        self.assertEqual(done[0]["none"]["delta"], 0.0)
        shown = report.policies(done, "none")
        self.assertIn("| cwl | 10 | 7 | +0.750 | +0.750 … +0.750 | 0% | 0.500 |", shown)


if __name__ == "__main__":
    unittest.main()

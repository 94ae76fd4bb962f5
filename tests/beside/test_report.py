"""Sums, intervals and the document's markers.

    python -m unittest discover -s tests/beside
"""

import pathlib
import tempfile
import types
import unittest

import beside
import environments
import report
import results

VENDORS = {"A": {"usd": {"input": 1.0, "output": 10.0}}}


def row(plain, output=0, peak=1, **more):
    return {"billed": {"A": [0, 0, plain]}, "output": output, "peak": peak, "kinds": {}, "milliseconds": [], **more}


def arm(name, kind=None, budget=None):
    return types.SimpleNamespace(name=name, kind=kind or name, budget=budget)


class Sums(unittest.TestCase):
    def test_money_is_beside_none_over_the_same_sessions(self):
        base = {"x": row(100, 10), "y": row(1000)}
        one = report.Sum(arm("b"), {"x": row(50, 10), "y": {"error": "gone"}}, base, VENDORS)
        self.assertAlmostEqual(one.relative("A"), 150 / 200)
        self.assertEqual((len(one.rows), one.errors, one.dearer("A")), (1, ["gone"], 0))

    def test_shares_have_an_interval_that_holds_them(self):
        pairs = [(number, 10) for number in range(11)]
        low, high = report.interval(pairs)
        self.assertLess(low, report.ratio(pairs))
        self.assertGreater(high, report.ratio(pairs))
        self.assertEqual(report.interval([(1, 2)] * 3), (0.5, 0.5))
        self.assertIsNone(report.ratio([(0, 0)]))

    def test_time_is_of_turns_that_both_answered(self):
        base = {"x": row(1, milliseconds=[1, 1, 1])}
        one = report.Sum(arm("b"), {"x": row(1, milliseconds=[3, -1, 2])}, base, VENDORS)
        self.assertEqual(one.added(), [2, 1])

    def test_a_loss_is_an_arm_that_costs_less_and_shows_as_much(self):
        base = {"x": row(100, need=10, kept=10)}
        sums = [report.Sum(arm(name, kind), {"x": row(cost, need=10, kept=kept)}, base, VENDORS)
                for name, kind, cost, kept in (("ours", "plimsoll", 90, 9), ("less", None, 80, 8), ("more", None, 80, 9))]
        self.assertIn("| ours | 0 | more (A) |", report.losses(sums))

    def test_a_budget_without_rows_is_told_in_a_sentence(self):
        base = {"x": row(100, need=10, kept=10)}
        of = [arm("none"), arm("ours 60k", "ours", 60_000), arm("marked", "plimsoll marked", 60_000), arm("ours 40k", "ours", 40_000)]
        sums = [report.Sum(one, {"x": row(80, need=10, kept=9)}, base, VENDORS) for one in of]
        self.assertEqual(report.told(sums, 60_000), "At 60,000 (A, %; K): ours 80, .900.")

    def test_an_arm_without_results_failed(self):
        one = report.Sum(arm("b"), {"x": {"error": "gone"}}, {"x": row(1)}, VENDORS)
        self.assertEqual(report.row(one, ["M tokens", "K"]), ["b", "failed", ""])
        self.assertIn("failed in 1 sessions, first with: gone", report.faults([one]))

    def test_lengths_part_the_sessions(self):
        base = {"x": row(100, peak=90_000), "y": row(100, peak=200_000)}
        sums = [report.Sum(arm(name), base, base, VENDORS) for name in ("none", "other")]
        drawn = report.lengths(sums, (100_000,))
        self.assertIn("| sessions | 1 | 1 | 1 | 1 |", drawn)
        self.assertIn("| other | 100 | 100 | – | – |", drawn)
        self.assertNotIn("| none |", drawn)


class Document(unittest.TestCase):
    def test_only_what_is_between_the_markers_is_new(self):
        text = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb <!-- y: begin --><!-- y: end -->"
        new = beside.between(text, "x", "new")
        self.assertEqual(new, text.replace("old", "new"))
        self.assertEqual(beside.between(new, "x", "new"), new)


class Kept(unittest.TestCase):
    def test_what_was_played_is_known_to_the_next_run_and_what_failed_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results.jsonl"
            first = results.Results(path)
            first.add("a", sent=1)
            first.add("b", error="gone")
            with path.open("a") as file:
                file.write('{"key": "c", "se')
            second = results.Results(path)
            self.assertEqual([second.done(name) for name in "abc"], [True, False, False])

    def test_pins_are_exact_and_each_has_an_environment(self):
        for name, (whole, alone) in environments.pins().items():
            self.assertTrue(whole or alone, name)
            self.assertTrue(all("==" in pin for pin in whole + alone), name)


if __name__ == "__main__":
    unittest.main()

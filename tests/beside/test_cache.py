"""The sum of what a session costs, by small requests whose price can be told by hand.

    python -m unittest discover -s tests/beside
"""

import unittest

from cache import Cache, Unit, dollars, table

AUTOMATIC = {"kind": "automatic", "step": 64}
IMPLICIT = {"kind": "breakpoints", "implicit": True, "max": 4}
EXPLICIT = {"kind": "breakpoints", "implicit": False, "max": 4, "look_back": 20}


def request(*parts):
    """Units by letters: `s` is the prologue, a capital has a breakpoint; each has so many tokens."""
    return [Unit(name.lower(), size, prologue=name == "s", marked=name.isupper()) for name, size in parts]


class Automatic(unittest.TestCase):
    def test_reads_whole_steps_of_the_longest_prefix(self):
        cache = Cache(AUTOMATIC, 64)
        self.assertEqual(cache.ask(request(("s", 100), ("a", 50))), (0, 0, 150))
        self.assertEqual(cache.ask(request(("s", 100), ("a", 50), ("b", 10))), (128, 0, 32))

    def test_knows_prefixes_of_all_requests_of_the_session(self):
        cache = Cache(AUTOMATIC, 64)
        cache.ask(request(("s", 64), ("a", 64)))
        cache.ask(request(("s", 64), ("b", 64)))
        self.assertEqual(cache.ask(request(("s", 64), ("a", 64))), (128, 0, 0))

    def test_reads_nothing_below_the_least_length(self):
        cache = Cache(AUTOMATIC, 1024)
        cache.ask(request(("s", 1000)))
        self.assertEqual(cache.ask(request(("s", 1000))), (0, 0, 1000))


class Breakpoints(unittest.TestCase):
    def test_writes_what_it_does_not_read(self):
        cache = Cache(IMPLICIT, 100)
        self.assertEqual(cache.ask(request(("s", 100), ("a", 50))), (0, 150, 0))
        self.assertEqual(cache.ask(request(("s", 100), ("a", 50), ("b", 10))), (150, 10, 0))

    def test_matches_only_where_an_earlier_request_ended(self):
        cache = Cache(IMPLICIT, 100)
        cache.ask(request(("s", 100), ("a", 50), ("b", 10)))
        self.assertEqual(cache.ask(request(("s", 100), ("a", 50), ("c", 10))), (0, 160, 0))

    def test_matches_at_an_explicit_breakpoint(self):
        cache = Cache(IMPLICIT, 100)
        cache.ask(request(("s", 100), ("A", 50), ("b", 10)))
        self.assertEqual(cache.ask(request(("s", 100), ("a", 50), ("c", 10))), (150, 10, 0))

    def test_an_agent_marks_its_prologue_where_the_vendor_does_not(self):
        cache = Cache(EXPLICIT, 100)
        cache.ask(request(("s", 100), ("a", 50)))
        self.assertEqual(cache.ask(request(("s", 100), ("c", 50))), (100, 50, 0))

    def test_looks_no_further_back_than_it_may(self):
        for blocks, read in ((20, 150), (21, 100)):
            cache = Cache(EXPLICIT, 100)
            cache.ask(request(("s", 100), ("a", 50)))
            more = [(f"more {number}", 1) for number in range(blocks)]
            self.assertEqual(cache.ask(request(("s", 100), ("a", 50), *more))[0], read, blocks)

    def test_takes_no_more_breakpoints_than_the_vendor_does(self):
        cache = Cache(EXPLICIT, 1)
        marks = cache.marks(request(("s", 1), ("A", 1), ("B", 1), ("C", 1), ("d", 1)))
        self.assertEqual(marks, [4, 0, 3, 2])

    def test_caches_nothing_below_the_least_length(self):
        cache = Cache(IMPLICIT, 1024)
        self.assertEqual(cache.ask(request(("s", 1000))), (0, 0, 1000))
        self.assertEqual(cache.ask(request(("s", 1000), ("a", 100))), (0, 1100, 0))


class Money(unittest.TestCase):
    def test_each_kind_of_token_has_its_price(self):
        usd = {"input": 2.0, "read": 0.1, "write": 2.5, "output": 10.0}
        self.assertAlmostEqual(dollars(usd, 1e6, 2e6, 3e6, 1e5), 0.1 + 5 + 6 + 1)

    def test_what_has_no_price_costs_as_much_as_input(self):
        self.assertAlmostEqual(dollars({"input": 2.0, "output": 1.0}, 1e6, 1e6, 0, 0), 4)

    def test_the_table_has_three_vendors_with_three_rules(self):
        found = table()
        self.assertEqual(len(found), 3)
        self.assertEqual(len({repr(one["cache"]) for one in found.values()}), 3)
        self.assertTrue(all({"input", "read", "output"} <= one["usd"].keys() for one in found.values()))


if __name__ == "__main__":
    unittest.main()

"""What a vendor's prompt cache holds of each request of a session, and what the session costs.

A request is a chain of units: its tools, then its messages. A cache knows exact prefixes, unit by unit; what it knows
of a session it keeps until the session ends. Owns the rules of matching and the sum; prices and kinds of caches come
from `config/models.toml`. Never reads a message.
"""

import pathlib
import tomllib

TABLE = pathlib.Path(__file__).resolve().parents[2] / "config/models.toml"
# One model of each of three vendors, with three rules. The table has no least length of a cached prefix:
# these are the vendors' own, from the pages on caching that it names.
VENDORS = {
    "OpenAI": ("gpt-6.1-sol", 1024),
    "Anthropic": ("claude-opus-5.5", 1024),
    "DeepSeek": ("deepseek-v4-pro", 64),
}


def table():
    """Of each vendor: the model's prices, its cache and the least length."""
    known = tomllib.loads(TABLE.read_text())
    found = {}
    for vendor, (model, least) in VENDORS.items():
        family = next(one for one in known["family"] if one["name"] == model)
        found[vendor] = {"model": model, "usd": family["usd"], "least": least,
                         "cache": known["caches"][family.get("cache", "automatic")]}
    return found


class Unit:
    """A part of a request: who it is, its tokens, its blocks, whether it stands in the prologue, and whether there is
    an explicit breakpoint on it."""

    __slots__ = ("key", "tokens", "blocks", "prologue", "marked")

    def __init__(self, key, tokens, blocks=1, prologue=False, marked=False):
        self.key = key
        self.tokens = tokens
        self.blocks = blocks
        self.prologue = prologue
        self.marked = marked


def chain(units):
    """Each prefix of a request: what it is, its tokens and its blocks."""
    prefixes, key, tokens, blocks = [], 0, 0, 0
    for unit in units:
        key = hash((key, unit.key))
        tokens += unit.tokens
        blocks += unit.blocks
        prefixes.append((key, tokens, blocks))
    return prefixes


class Cache:
    """The cache of one session at one vendor. `ask` tells how a request's tokens are billed."""

    def __init__(self, rule, least):
        self.rule = rule
        self.least = least
        self.known = set()

    def ask(self, units):
        """Tokens read, written and plain."""
        prefixes = chain(units)
        total = prefixes[-1][1] if prefixes else 0
        if self.rule["kind"] == "automatic":
            read = self.automatic(prefixes)
            return read, 0, total - read
        read = self.breakpoints(units, prefixes)
        return (read, total - read, 0) if total >= self.least else (0, 0, total)

    def automatic(self, prefixes):
        """The longest prefix that an earlier request had, in whole steps."""
        common = max((tokens for key, tokens, _ in prefixes if key in self.known), default=0)
        self.known.update(key for key, _, _ in prefixes)
        read = common // self.rule["step"] * self.rule["step"]
        return read if read >= self.least else 0

    def breakpoints(self, units, prefixes):
        """The longest prefix that an earlier request wrote at one of its breakpoints, at most so many blocks before
        one of this request's."""
        marks = self.marks(units)
        back = self.rule.get("look_back")
        near = [one for one in prefixes if one[0] in self.known and (back is None or any(
            0 <= prefixes[mark][2] - one[2] <= back for mark in marks))]
        self.known.update(prefixes[mark][0] for mark in marks if prefixes[mark][1] >= self.least)
        return max((tokens for _, tokens, _ in near), default=0)

    def marks(self, units):
        """Where a request has breakpoints: at its newest message, behind its prologue where the vendor sets none
        itself and the agent does, and where the request says so, the last of those first, as many as are allowed."""
        prologue = sum(unit.prologue for unit in units)
        marks = [len(units) - 1] if units else []
        if not self.rule["implicit"] and prologue:
            marks.append(prologue - 1)
        said = [place for place, unit in enumerate(units) if unit.marked]
        return (marks + said[::-1])[:self.rule["max"]]


def dollars(usd, read, written, plain, output):
    """The price of so many tokens of each kind."""
    prices = (usd.get("read", usd["input"]), usd.get("write", usd["input"]), usd["input"], usd["output"])
    return sum(price * tokens for price, tokens in zip(prices, (read, written, plain, output))) / 1e6

"""What of a next call was said before, and what of it is still in view.

`strings` are the distinctive strings of a text: paths, names, ids, long numbers. `needs` are those of a call's
arguments that the history has; `values` are all its arguments that the history has. Owns what counts as said.
Never reads a request's JSON: a string counts where it stands in a text, a name or arguments.
"""

import json
import re

from tokens import calls_of, text_of

STRING = re.compile(r"[A-Za-z0-9_./\-]{8,}|\d{5,}")
RECALLS = ("recall", "headroom_retrieve")


def strings(text):
    """Distinctive strings: at least 8 characters with a mark of punctuation, a digit or a change of case in them."""
    return {one for one in STRING.findall(text)
            if (len(one) >= 8 and re.search(r"[/_.\-]|[a-z][A-Z]|\d", one)) or re.fullmatch(r"\d{5,}", one)}


def leaves(value):
    """The values of arguments, without their names."""
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def arguments(message):
    """All values of a message's calls."""
    found = []
    for _, text in calls_of(message):
        try:
            found += leaves(json.loads(text))
        except ValueError:
            found.append(text)
    return found


def spoken(messages):
    """All that messages say, as one text. Arguments stand there as they were sent and as what they mean."""
    parts = []
    for one in messages:
        parts.append(text_of(one.get("content")))
        for name, text in calls_of(one):
            parts += [name, text]
        parts += arguments(one)
    return "\n".join(parts)


def needs(history, view, message):
    """Of distinctive strings that the next call needs: how many were said before, and how many are in view."""
    said = [one for one in strings("\n".join(arguments(message))) if one in history]
    return len(said), sum(one in view for one in said)


def values(history, view, message, tools):
    """Of a call's arguments: how many were said before, how many of those are in view, and how many are there or can
    be called back with a tool that the request offers."""
    said = [one for one in arguments(message) if one and one in history]
    seen = sum(one in view for one in said)
    offered = any(tool.get("function", {}).get("name") in RECALLS for tool in tools)
    return len(said), seen, len(said) if offered else seen

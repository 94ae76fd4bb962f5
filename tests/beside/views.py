"""What an agent would send that cuts its own history: the arms that need no proxy.

`Truncation` keeps the system text and the newest messages. `Clearing` follows the published rules of Anthropic's
context editing, `clear_tool_uses_20250919`. Owns both rules. Never changes a message in place.
"""

PLACEHOLDER = "[cleared]"


class Whole:
    """The history as it is."""

    def view(self, messages, tools):
        return messages


class Truncation:
    """The system text and the newest messages that fit a budget; a call and its results stay or go together."""

    def __init__(self, sizer, budget):
        self.sizer = sizer
        self.budget = budget

    def view(self, messages, tools):
        system = [one for one in messages if one["role"] == "system"]
        groups = grouped([one for one in messages if one["role"] != "system"])
        room = self.budget - self.sizer.request(system, tools)
        kept = []
        for group in reversed(groups):
            room -= sum(map(self.sizer.message, group))
            if room < 0 and kept:
                break
            kept[:0] = group
        return system + kept


def grouped(messages):
    """Messages, each answer together with the results of its calls."""
    groups = []
    for one in messages:
        if one["role"] == "tool" and groups:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


class Clearing:
    """Results of tools are replaced, oldest first, by a placeholder once a prompt is above `trigger`.

    The newest `keep` uses of tools stay, and so do those of `exclude` tools. If less than `at_least` tokens would go,
    nothing does. An agent sends its whole history each time, so a request that is judged alone is above the trigger
    from the first time on, and each one moves the line. With `held` what was cleared stays cleared, and the next
    clearing waits until the prompt that is left is above the trigger again.
    """

    def __init__(self, sizer, trigger, keep=3, at_least=0, exclude=(), held=False):
        self.sizer = sizer
        self.trigger = trigger
        self.keep = keep
        self.at_least = at_least
        self.exclude = exclude
        self.held = held
        self.cleared = set()

    def view(self, messages, tools):
        cleared = self.cleared if self.held else set()
        view = self.replaced(messages, cleared)
        before = self.sizer.request(view, tools)
        if before > self.trigger:
            wanted = cleared | self.clearable(messages)
            shorter = self.replaced(messages, wanted)
            if before - self.sizer.request(shorter, tools) >= max(1, self.at_least):
                cleared, view = wanted, shorter
        if self.held:
            self.cleared = cleared
        return view

    def clearable(self, messages):
        """The places of results that may go."""
        names = {call["id"]: call["function"]["name"] for one in messages for call in one.get("tool_calls") or []}
        places = [place for place, one in enumerate(messages) if one["role"] == "tool"]
        old = places[:-self.keep] if self.keep else places
        return {place for place in old if names.get(messages[place].get("tool_call_id")) not in self.exclude}

    @staticmethod
    def replaced(messages, places):
        return [{**one, "content": PLACEHOLDER} if place in places else one for place, one in enumerate(messages)]

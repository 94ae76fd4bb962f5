"""How a scripted model marks its work with Plimsoll's `delimiter`, from the tools that it is about to use.

Between two texts of the user it explores until the first call that writes, then acts, and the action depends on what
was explored; so on. This is the rule `inferred` of `scripted/src/plan/infer.rs`, and the lists of names are those of
`annotate.rs` beside it. It marks only beside recorded calls, so that no mark needs a request of its own, and only once
it is asked to: the tool's description says to wait for that. Owns the rule. Never changes a recorded answer.
"""

import json

TOOL = "delimiter"
ACTS = ("edit", "write", "patch", "create", "update", "book_", "cancel", "save", "delete")
LOOKS = ("read", "grep", "glob", "ls", "find", "search", "get_", "list", "query")
SHELLS = ("bash", "terminal", "powershell", "shell", "exec")
WRITES = ("sed -i", " > ", " >> ", "<<", "git commit", "git add", "mkdir ", "rm ", "mv ", "cp ", "install", "touch ")


def kind_of_call(name, arguments):
    """`act`, `expl`, or None for calls that are neither."""
    name = name.lower()
    if name.startswith(("task", "todo")):
        return None
    if any(word in name for word in SHELLS):
        return "act" if any(word in arguments for word in WRITES) else "expl"
    if any(word in name for word in ACTS):
        return "act"
    return "expl" if any(word in name for word in LOOKS) else None


def kind_of(calls):
    kinds = [kind_of_call(*call) for call in calls]
    return "act" if "act" in kinds else next((kind for kind in kinds if kind), None)


class Marker:
    """The marks of one session, turn by turn."""

    def __init__(self):
        self.open = None
        self.explored = []
        self.count = 0

    def marks(self, turn, asked, calls):
        """The calls of `delimiter` beside a turn's calls. `asked`: whether the user spoke before it."""
        if not calls:
            return []
        kind = kind_of(calls)
        values = []
        if asked or (kind and kind != self.open):
            values += self.close()
        if asked:
            self.explored = []
        if not self.open and kind:
            values.append(self.begin(kind))
        return [{"id": f"call_i{turn}c{place}", "type": "function",
                 "function": {"name": TOOL, "arguments": json.dumps(value)}} for place, value in enumerate(values)]

    def close(self):
        kind, self.open = self.open, None
        if kind == "act":
            return [{"action": "end"}]
        if kind == "expl":
            self.explored.append(f"look-{self.count}")
            return [{"action": "end", "description": "looked around before the next change"}]
        return []

    def begin(self, kind):
        self.count += 1
        self.open = kind
        if kind == "expl":
            return {"action": "start", "type": kind, "name": f"look-{self.count}"}
        return {"action": "start", "type": kind, "name": f"change-{self.count}", "dependencies": list(self.explored)}

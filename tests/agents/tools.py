"""What the tools of real agents are called: scripts say `shell` and `read`, and each agent has names
and arguments of its own for them."""

import json
from dataclasses import dataclass

# By agent: the tool, the argument that carries the command or the path, and what it demands beside.
SHELL = {
    "opencode": ("bash", "command", {"description": "Runs a step of the task"}),
    "codex": ("exec_command", "cmd", {"yield_time_ms": 30_000}),
    "claude": ("Bash", "command", {"description": "Run a step of the task"}),
    "pi": ("bash", "command", {}),
    "mini": ("bash", "command", {}),
    "copilot": ("bash", "command", {"description": "Run a step of the task"}),
}
# codex's own models are given one tool that runs a program, and its text is all that the call says.
PROGRAM = {"codex-code": ("functions.exec", "text(await tools.exec_command({arguments}));")}
# Where there is none, a file is read by the shell.
READ = {
    "opencode": ("read", "filePath"),
    "claude": ("Read", "file_path"),
    "pi": ("read", "path"),
    "copilot": ("view", "path"),
}
# What tells a part of a file there: the arguments for its first line and for how many lines it has.
PART = ("offset", "limit")
# The tool that starts a sub-agent, the argument that carries the prompt, and what it demands beside.
DELEGATE = {
    "codex": ("multi_agent_v1.spawn_agent", "message", {}),
    "opencode": ("task", "prompt", {"description": "Looks around", "subagent_type": "general"}),
    "copilot": (
        "task",
        "prompt",
        {"description": "Look around", "agent_type": "general-purpose", "name": "looks-around"},
    ),
    "claude": (
        "Agent",
        "prompt",
        {
            "description": "Look around",
            "subagent_type": "general-purpose",
            "run_in_background": False,
        },
    ),
}
# Names no session in its requests: two that were told the same words would be one conversation.
NAMELESS = {"copilot"}
# mini-swe-agent knows no answer without a call, and ends with this one.
SUBMIT = {"mini": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}


@dataclass(frozen=True)
class Tools:
    """One agent's tools, and the directory that it works in."""

    agent: str
    root: str

    def call(self, name, arguments):
        """The agent's own name and arguments for what the script calls."""
        if name == "shell":
            return self.shell(arguments["command"])
        if name == "part":
            return self.part(**arguments)
        if name == "delegate":
            name, argument, more = DELEGATE[self.agent]
            part = f" Part {arguments['part']}." if self.agent in NAMELESS else ""
            return name, {argument: arguments["prompt"] + part, **more}
        if name != "read":
            return name, arguments
        path = f"{self.root}/{arguments['path']}"
        if self.agent not in READ:
            return self.shell(f"cat {path}")
        name, argument = READ[self.agent]
        return name, {argument: path}

    def part(self, path, first, lines):
        """Reads some lines of a file."""
        if self.agent not in READ:
            return self.shell(f"sed -n '{first},{first + lines - 1}p' {self.root}/{path}")
        name, arguments = self.call("read", {"path": path})
        return name, {**arguments, **dict(zip(PART, (first, lines)))}

    def shell(self, command):
        if self.agent in PROGRAM:
            name, program = PROGRAM[self.agent]
            arguments = json.dumps({"cmd": command, "yield_time_ms": 30_000})
            return name, {"input": program.replace("{arguments}", arguments)}
        name, argument, more = SHELL[self.agent]
        return name, {argument: command, **more}

    def submit(self, ends):
        """The call that stands for the end of a task, where the agent needs one and it ends."""
        return self.shell(SUBMIT[self.agent]) if ends and self.agent in SUBMIT else None

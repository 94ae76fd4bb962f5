"""Rivals that are no arm, and why: each is installed, and asked for what it would have to do in a session.

Owns the questions. An answer is what the rival itself says, so that the document changes when a rival does.
"""

import subprocess
import textwrap

import environments

CTXPRUNE = "import ctxprune; print(len(ctxprune.prune('hello world ' * 100, keep=0.5)))"
NEEDLEPATH = """
from needlepath import ContextRecord, NeedlepathClient, TaskSpec
client = NeedlepathClient(api_key="np_live_none", operating_point="np-2026-08-r4")
record = ContextRecord(text="hello world " * 400, kind="tool_result", id="a")
told = client.select(records=[record], task=TaskSpec(prompt="what is said?"), max_context_tokens=100)
print("applied" if told.applied else f"not applied: {told.error}")
"""
RIVALS = {
    "needlepath": ("a client of a service that its makers host; what is selected is decided there, behind a key",
                   NEEDLEPATH),
    "ctxprune": ("a library and a hook that shorten one result of a tool before the model reads it, by a model of "
                 "its own, which is fetched from a hub at the first use", CTXPRUNE),
}


def asked(name, program):
    """The last line that the rival says."""
    try:
        python = environments.environment(name) / "bin/python"
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=120)
    except (environments.Missing, subprocess.TimeoutExpired) as failure:
        return str(failure)
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return textwrap.shorten((lines or ["nothing"])[-1], 90, placeholder=" …")


def told():
    """A line for each."""
    return "\n".join(f"- `{environments.version(name)}` is {what}. Asked here, it says: `{asked(name, program)}`"
                     for name, (what, program) in RIVALS.items())

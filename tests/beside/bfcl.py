"""Writes the sessions of BFCL's `multi_turn_long_context` to standard output, one JSON object a line.

    python bfcl.py            in the environment that has `bfcl-eval`

The calls are those of the benchmark's ground truth; each is carried out by the benchmark's own Python classes, so the
results are real, and what a later call needs stands where a model would have read it. Each turn ends with a short
answer of ours. Owns this replay. Never asks a model.
"""

import ast
import copy
import importlib
import json
import pathlib
import random
import sys

import bfcl_eval
from bfcl_eval.constants import executable_backend_config as backend

DATA = pathlib.Path(bfcl_eval.__file__).parent / "data"
NAME = "BFCL_v4_multi_turn_long_context.json"
ENDED = "Done. Tell me what is next."
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def documents(classes):
    """The tools of some classes, as their documents have them."""
    folder = DATA / "multi_turn_func_doc"
    return [one for name in classes for one in lines(folder / backend.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name])]


def schema(value):
    """A schema whose types are JSON's."""
    if isinstance(value, dict):
        return {key: TYPES.get(one, one) if key == "type" and isinstance(one, str) else schema(one)
                for key, one in value.items()}
    return [schema(one) for one in value] if isinstance(value, list) else value


def tool(document):
    return {"type": "function", "function": {"name": document["name"], "description": document["description"],
                                             "parameters": schema(document["parameters"])}}


def instances(task):
    """The objects that carry out a task's calls."""
    made = []
    for name in task["involved_classes"]:
        one = getattr(importlib.import_module(backend.CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in backend.STATELESS_CLASSES:
            one._load_scenario(copy.deepcopy(task["initial_config"].get(name, {})), long_context=True)
        made.append(one)
    return made


def parsed(text, parameters):
    """The name and the arguments of a call that is written in Python."""
    call = ast.parse(text.strip(), mode="eval").body
    names = list(parameters.get(call.func.id, {}))
    values = dict(zip(names, map(ast.literal_eval, call.args)))
    values.update({one.arg: ast.literal_eval(one.value) for one in call.keywords})
    return call.func.id, values


def result(objects, name, values):
    """What a call returns, as the benchmark tells a model."""
    try:
        method = next(getattr(one, name) for one in objects if hasattr(one, name))
        returned = method(**values)
    except Exception as failure:  # The benchmark tells the model of any.
        return f"Error during execution: {failure}"
    if isinstance(returned, str):
        return returned
    try:
        return json.dumps(returned)
    except TypeError:
        return str(returned)


def session(task, answers):
    """A task as a history."""
    described = documents(task["involved_classes"])
    parameters = {one["name"]: one["parameters"]["properties"] for one in described}
    random.seed(0)
    objects, messages = instances(task), []
    for said, calls in zip(task["question"], answers):
        messages += [{"role": one["role"], "content": one["content"]} for one in said]
        for text in calls:
            name, values = parsed(text, parameters)
            known = f"call_{len(messages)}"
            messages.append({"role": "assistant", "content": None, "tool_calls": [
                {"id": known, "type": "function", "function": {"name": name, "arguments": json.dumps(values)}}]})
            messages.append({"role": "tool", "tool_call_id": known, "content": result(objects, name, values)})
        messages.append({"role": "assistant", "content": ENDED})
    return {"name": task["id"], "messages": messages, "tools": [tool(one) for one in described]}


def main():
    answers = {one["id"]: one["ground_truth"] for one in lines(DATA / "possible_answer" / NAME)}
    for task in lines(DATA / NAME):
        try:
            print(json.dumps(session(task, answers[task["id"]])))
        except (SyntaxError, ValueError) as failure:
            print(f"{task['id']}: {failure}", file=sys.stderr)


if __name__ == "__main__":
    main()

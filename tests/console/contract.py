"""The OpenAPI file as tests use it: a judge of answers, and types for the compiler.

Owns the reading of `docs/console/openapi.json`. Knows nothing of any server.
"""

import json
from pathlib import Path

from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
SPEC = json.loads((ROOT / "docs/console/openapi.json").read_text())
SCHEMAS = SPEC["components"]["schemas"]


def fault(name, value):
    """What is wrong with an answer that should be a `name`; nothing if it is one."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": SPEC["components"]}
    value = sampled(value)
    faults = sorted(Draft202012Validator(schema).iter_errors(value), key=lambda e: len(e.path))
    return f"{name}{faults[0].json_path}: {faults[0].message}"[:400] if faults else None


def sampled(value):
    """Of a long list its ends: what stands between was made in the same way, and judging takes time."""
    if isinstance(value, dict):
        return {name: sampled(one) for name, one in value.items()}
    if isinstance(value, list):
        return [sampled(one) for one in (value if len(value) <= 40 else value[:20] + value[-20:])]
    return value


def types():
    """The schemas as TypeScript declares them."""
    lines = ["// Written from docs/console/openapi.json by the tests. Not edited."]
    lines += [f"export type {name} = {type_of(schema)};" for name, schema in SCHEMAS.items()]
    return "\n".join(lines) + "\n"


PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def type_of(schema):
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(type_of(one) for one in schema[union])
    kinds = schema.get("type", "unknown")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " | ".join(kind_of(kind, schema) for kind in kinds)


def kind_of(kind, schema):
    if kind == "array" and "prefixItems" in schema:
        return "[" + ", ".join(type_of(one) for one in schema["prefixItems"]) + "]"
    if kind == "array":
        return f"({type_of(schema['items'])})[]"
    if kind == "object":
        required = schema.get("required", [])
        fields = [
            f"{json.dumps(name)}{'' if name in required else '?'}: {type_of(field)};"
            for name, field in schema.get("properties", {}).items()
        ]
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            fields.append(f"[name: string]: {type_of(extra)};")
        return "{ " + " ".join(fields) + " }"
    return PLAIN.get(kind, "unknown")

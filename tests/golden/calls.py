"""Functions and calls of the Berkeley Function Calling Leaderboard, for the tests of formats in which models call tools.

    pip download --no-deps bfcl-eval==2026.3.23 && python tests/golden/calls.py bfcl_eval-2026.3.23-py3-none-any.whl

Writes `calls.json`: for every twelfth question of some categories its functions, as names and JSON schemas without descriptions, and
a call of each function that its answers name, with the first of the arguments that are right. What is no valid call by the schema is
left out. Needs the package `jsonschema`.
"""

import json
import pathlib
import sys
import zipfile

import jsonschema

CATEGORIES = ("simple_python", "multiple", "parallel_multiple", "live_simple")
EVERY = 12
TYPES = {"dict": "object", "float": "number", "tuple": "array", "string": "string", "integer": "integer", "boolean": "boolean"}
TYPES |= {name: name for name in ("array", "object", "number")}


def schema_of(of):
    """The JSON schema of a type of the leaderboard; nothing is said of other types."""
    schema = {}
    if of.get("type") in TYPES:
        schema["type"] = TYPES[of["type"]]
    if "enum" in of:
        schema["enum"] = of["enum"]
    if of.get("properties"):
        schema["properties"] = {name: schema_of(value) for name, value in of["properties"].items()}
        schema["required"] = of.get("required", [])
        schema["additionalProperties"] = False
    if "items" in of:
        schema["items"] = schema_of(of["items"])
    return schema


def chosen(schema, value):
    """A value, in which the values of objects are lists of those that are right; its keys in the order of the schema."""
    if isinstance(value, dict):
        known = schema.get("properties", {})
        first = {name: first_of(known.get(name, {}), values) for name, values in value.items()}
        return {name: first[name] for name in [*known, *first] if first.get(name) is not None}
    if isinstance(value, list):
        return [chosen(schema.get("items", {}), one) for one in value]
    return value


def first_of(schema, values):
    """The first value that is given; an optional one has the alternative of an empty text."""
    given = [value for value in values if value != ""] if isinstance(values, list) else [values]
    return chosen(schema, given[0]) if given else None


def main():
    groups = []
    with zipfile.ZipFile(pathlib.Path(sys.argv[1])) as wheel:

        def lines(path):
            return [json.loads(line) for line in wheel.read(f"bfcl_eval/data/{path}.json").decode().splitlines()]

        for category in CATEGORIES:
            answers = {one["id"]: one["ground_truth"] for one in lines(f"possible_answer/BFCL_v4_{category}")}
            for question in lines(f"BFCL_v4_{category}")[::EVERY]:
                functions = {one["name"]: schema_of(one["parameters"]) for one in question["function"]}
                calls = []
                for answer in answers[question["id"]]:
                    [(name, arguments)] = answer.items()
                    arguments = chosen(functions[name], arguments)
                    if jsonschema.Draft202012Validator(functions[name]).is_valid(arguments):
                        calls.append({"name": name, "arguments": arguments})
                if calls:
                    groups.append({"functions": functions, "calls": calls})
    lines = ",\n".join(json.dumps(group, ensure_ascii=False, separators=(",", ":")) for group in groups)
    (pathlib.Path(__file__).parent / "calls.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(groups)} groups, {sum(len(group['calls']) for group in groups)} calls")


if __name__ == "__main__":
    main()

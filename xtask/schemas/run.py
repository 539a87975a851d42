"""Grammars of JSON schemas against what others say of the same schemas.

`suite`: the verdicts on JSON-Schema-Test-Suite, from the source distribution of `jsonschema`. A grammar may refuse a schema and may be
stricter than it, as `suite.txt` lists, but takes no value that the schema forbids. Where the library alone judges better, `suite.txt` has
the case, too. A verdict that changed is an error: mend it, or write the list anew with `--write`.

`answers`: answers of the demo model, drawn at random under 50 schemas, are valid by `jsonschema`: at least 1,000 that ended.

`hostile`: a server answers or refuses 1,000 schemas that are made to hurt; with `--streams MODEL` instead, the gaps in streams of that
model are measured without and with such schemas beside them.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import jsonschema

import hostile

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parents[1]
sys.path.append(str(ROOT / "xtask/clients"))

from server import Server

LIST = FOLDER / "suite.txt"
PACKAGE = (FOLDER / "requirements.txt").read_text().strip().replace("[format]", "")
# How far a verdict is from right: to refuse is better than to forbid what is valid, and that better than to take what is not.
RANKS = {"right": 0, "refused": 1, "too strict": 2, "too lax": 3}
ANSWERS = 22


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask schemas", description=__doc__.splitlines()[0])
    parser.add_argument("--redline", default=ROOT / "target/release/redline", help="the binary")
    parser.add_argument("--only", choices=["suite", "answers", "hostile"], help="one of them")
    parser.add_argument("--streams", metavar="MODEL", help="measure streams of this model beside hostile schemas, and nothing else")
    parser.add_argument("--write", action="store_true", help="write the list of the suite anew")
    arguments = parser.parse_args()
    if arguments.streams:
        with Server(arguments.redline, arguments.streams, classes=()) as server:
            hostile.beside_streams(server)
        return 0
    failed, wanted = False, [arguments.only] if arguments.only else ["suite", "answers", "hostile"]
    if "suite" in wanted:
        failed |= suite(arguments.write)
    if "answers" in wanted:
        failed |= answers(arguments.redline)
    if "hostile" in wanted:
        with Server(arguments.redline, "demo", classes=()) as server:
            failed |= hostile.all_answered(server)
    return int(failed)


def suite(writes):
    """Compares the verdicts on the suite with the list."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", PACKAGE]
        subprocess.run(command, cwd=folder, check=True)
        [archive] = pathlib.Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        [cases] = pathlib.Path(folder).glob("*/json/tests/draft2020-12")
        ours, library = verdicts(cases), verdicts(cases, "--library")
    lines = [f"{verdict}: {case}" for case, verdict in ours.items() if verdict.startswith("too")]
    for case in sorted({*ours, *library}):
        mine, its = ours.get(case, "right"), library.get(case, "right")
        if RANKS[mine] > RANKS[its]:
            lines.append(f"{mine}, and {its} by the library: {case}")
    text = "".join(f"{line}\n" for line in sorted(lines))
    print(f"suite: {len(lines)} cases in the list, {sum(verdict == 'refused' for verdict in ours.values())} refused")
    if writes:
        LIST.write_text(text)
    listed, found = set(LIST.read_text().splitlines()), set(lines)
    for line in sorted(found - listed):
        print(f"new:  {line}")
    for line in sorted(listed - found):
        print(f"gone: {line}")
    return listed != found


def verdicts(cases, *flags):
    """The verdicts that are not right, by case."""
    command = ["cargo", "run", "--quiet", "--release", "--package", "redline-grammar", "--example", "schema_suite", "--", cases, "--list"]
    done = subprocess.run([*command, *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    pairs = (line.split(": ", 1)[::-1] for line in done.stdout.splitlines() if ": " in line)
    return {case: verdict for case, verdict in pairs}


def schemas():
    """50 schemas whose values end: every kind of value, alone and in objects and lists."""
    text = {"type": "string", "maxLength": 6}
    plain = [
        {"enum": ["Israel", "Judah", 7, None, [1, {"a": "b"}]]},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "integer", "minimum": -5, "maximum": 12},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "multipleOf": 0.25},
        text,
        {"type": "string", "pattern": "^[a-c]{2,4}(-[0-9]+)?$", "maxLength": 8},
        {"type": "string", "format": "ipv4"},
        {"type": "string", "format": "uuid"},
        {"const": {"x": [1, 2]}},
    ]
    closed = {"type": "object", "additionalProperties": False}
    for schema in plain:
        yield schema
    for one, other in zip(plain, plain[1:] + plain[:1]):
        yield closed | {"properties": {"first": one, "second": other}, "required": ["second"]}
    for schema in plain:
        yield {"type": "array", "items": schema, "minItems": 1, "maxItems": 3}
    for one, other in zip(plain, plain[3:] + plain[:3]):
        yield {"type": "array", "prefixItems": [one, other], "items": False, "minItems": 2}
    tree = closed | {"properties": {"name": text, "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}, "required": ["name", "next"]}
    yield {"$ref": "#/$defs/tree", "$defs": {"tree": tree}}
    yield {"anyOf": [{"type": "integer", "maximum": 3, "minimum": 0}, closed | {"properties": {"a": text}, "required": ["a"]}]}
    yield {"type": "object", "patternProperties": {"^x[0-9]$": {"type": "boolean"}}, "additionalProperties": False}
    yield {"type": "object", "properties": {"a": text}, "required": ["a"], "additionalProperties": {"type": "boolean"}, "maxProperties": 2}
    yield {"type": ["string", "integer", "null"], "maxLength": 4, "minimum": 0, "maximum": 99}
    yield {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}]}
    yield closed | {"properties": {"é\"\n": text, "b": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["é\"\n"]}
    yield {"type": "string", "minLength": 3, "maxLength": 5}
    yield {"oneOf": [{"type": "boolean"}, {"type": "null"}]}
    yield closed | {"properties": {"list": {"type": "array", "items": closed | {"properties": {"n": {"enum": [1, 2]}}}, "maxItems": 2}}}


def answers(binary):
    """Draws answers under every schema, and validates those that end."""
    everything = list(schemas())
    assert len(everything) == 50, len(everything)
    lines = []
    for schema in everything:
        for seed in range(ANSWERS):
            line = {"prompt": "In the", "max_new_tokens": 200, "temperature": 1, "seed": seed, "json_schema": schema}
            lines.append(json.dumps(line))
    command = [binary, "generate", "--model", "demo", "--jsonl", "-", "--quiet"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True)
    ended, wrong = 0, 0
    for index, line in enumerate(done.stdout.splitlines()):
        schema = everything[index // ANSWERS]
        document = json.loads(line)
        if "choices" not in document:
            wrong += 1
            print(f"refused: {json.dumps(schema)}: {line}")
            continue
        [answer] = document["choices"]
        if answer["finish_reason"] != "stop":
            continue
        text = answer["text"]
        ended += 1
        checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        try:
            checker.validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            wrong += 1
            print(f"wrong: {json.dumps(schema)}: {text!r}: {error}")
    print(f"answers: {ended} of {len(lines)} ended, {wrong} of them are not valid")
    return wrong > 0 or ended < 1000


if __name__ == "__main__":
    sys.exit(main())

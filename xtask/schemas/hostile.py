"""Schemas that are made to hurt: a server answers or refuses each of them in bounded time and memory, and streams beside them go on.

Each is refused with 400 and the name of its field, or gives a text that is read as JSON or was cut. `--streams` names the model of
the streams: their gaps between tokens are compared beside 100 requests with a plain schema and beside 100 with these.
"""

import json
import multiprocessing
import random
import statistics
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

SCHEMAS = 1_000
BESIDE = 100
STREAMS = 2
TOKENS = 600
ROUNDS = 4
# A server that answers later than that is blocked.
PATIENCE = 60


def deep(rng):
    """Nested in one of several ways, up to beyond the limit of depth."""
    schema = {"type": "string"}
    for _ in range(rng.randrange(4, 200)):
        schema = rng.choice(
            [{"type": "array", "items": schema}, {"properties": {"a": schema}, "required": ["a"]}, {"anyOf": [schema, {"type": "null"}]}]
        )
    return schema


def wide(rng):
    """Thousands of properties or values."""
    count = rng.randrange(500, 6_000)
    if rng.random() < 0.5:
        return {"properties": {f"key_{i}": {"type": "integer"} for i in range(count)}, "required": [f"key_{i}" for i in range(0, count, 3)]}
    return {"enum": [f"{'x' * rng.randrange(1, 40)}{i}" for i in range(count)]}


def looped(rng):
    """References that lead in a circle, with and without a way out."""
    names = [f"t{i}" for i in range(rng.randrange(1, 40))]
    definitions = {}
    for name in names:
        branches = [{"$ref": f"#/$defs/{rng.choice(names)}"} for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.4:
            branches.append({"type": "null"})
        definitions[name] = rng.choice([{"anyOf": branches}, {"allOf": branches}, {"properties": {"a": branches[0], "b": branches[-1]}, "required": ["a"]}])
    return {"$ref": f"#/$defs/{names[0]}", "$defs": definitions}


def chained(rng):
    """Thousands of references that lead to each other, in any order of their names."""
    count = rng.randrange(200, 8_000)
    names = [f"t{i}" for i in range(count)]
    rng.shuffle(names)
    next_of = [{"$ref": f"#/$defs/{name}"} for name in names]
    link = rng.choice([lambda to: to, lambda to: {"properties": {"a": to}, "required": ["a"]}, lambda to: {"type": "array", "items": to, "minItems": 1}])
    definitions = {name: link(to) for name, to in zip(names, next_of[1:])} | {names[-1]: {"type": "null"}}
    return {"$ref": f"#/$defs/{names[0]}", "$defs": definitions}


def repeated(rng):
    """Counts that multiply."""
    schema = {"type": "string", "maxLength": rng.choice([10, 10_000, 10**9])}
    for _ in range(rng.randrange(1, 5)):
        least = rng.choice([0, 7, 1_000, 10**6])
        schema = {"type": "array", "items": schema, "minItems": least, "maxItems": least * rng.choice([1, 10])}
    return schema


def pattern(rng):
    """Regular expressions whose automata explode."""
    n = rng.randrange(5, 2_000)
    text = rng.choice(
        [f"^(a|b)*a(a|b){{{n}}}$", f"^(x{{0,{n}}}y{{0,{n}}})+z$", f"^(?:[a-z]+[0-9]*)+{{{n}}}$", "^" + "(" * min(n, 400) + "a" + ")*" * min(n, 400) + "$",
         f"^(\\p{{L}}{{1,{n}}}|\\d{{2,{n}}})*$", f"^[^a]{{{n}}}(?=b)$", "[", f"^.{{{n},}}$"]
    )
    return {"type": "string", "pattern": text}


def contradiction(rng):
    """What no value can be."""
    return rng.choice(
        [
            {"allOf": [{"type": "string"}, {"type": "integer"}]},
            {"type": "integer", "minimum": 5, "maximum": 4},
            {"type": "object", "properties": {"a": False}, "required": ["a"]},
            {"type": "array", "items": False, "minItems": 1},
            {"enum": []},
            {"type": "string", "pattern": "^a+$", "maxLength": 0},
            {"const": 1, "enum": [2]},
            {"type": "number", "multipleOf": 0},
            False,
        ]
    )


def crossed(rng):
    """Intersections of alternatives."""
    branches = lambda: [{"properties": {rng.choice("abcdef"): {"enum": rng.sample(range(40), 20)}}} for _ in range(rng.randrange(2, 9))]
    return {"allOf": [{rng.choice(["anyOf", "oneOf"]): branches()} for _ in range(rng.randrange(2, 12))]}


def wrong(rng):
    """What is no schema."""
    return rng.choice([{"type": 7}, {"properties": []}, {"$ref": 3}, {"$ref": "http://127.0.0.1:1/x"}, {"required": "a"}, {"items": [3]}, {"maxLength": -1},
                       {"type": "string", "format": "\u0000"}, {"minimum": "a"}, {"$defs": 1, "$ref": "#/$defs/a"}, {"patternProperties": {"(": {}}}])


KINDS = [deep, wide, looped, chained, repeated, pattern, contradiction, crossed, wrong]


def schemas(count, seed):
    rng = random.Random(seed)
    return [KINDS[i % len(KINDS)](rng) for i in range(count)]


def body_of(schema, tokens=16):
    body = {"prompt": "In the", "max_tokens": tokens, "timeout_s": 20, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    return json.dumps(body).encode()


def ask(url, body):
    """The status, and why it is none that may be."""
    request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            choice = json.load(answer)["choices"][0]
            if choice["finish_reason"] == "stop":
                json.loads(choice["text"])
            return 200, None
    except urllib.error.HTTPError as error:
        told = json.load(error)["error"]
        # A body that is nested beyond the limit is not read.
        named = error.code == 400 and (told["param"] == "response_format.json_schema.schema" or "nested too deeply" in told["message"])
        late = error.code in (408, 429) and told["code"] in ("deadline_exceeded", "queue_full")
        return error.code, None if named or late else f"{error.code} {told}"


def memory(pid):
    """Peak memory of a process in MiB."""
    with open(f"/proc/{pid}/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("VmHWM:"))) >> 10


def all_answered(server):
    """Sends every schema, and prints how long it took."""
    before, begun, counts, failed = memory(server.process.pid), time.monotonic(), {}, 0
    with ThreadPoolExecutor(8) as pool:
        for status, wrong_answer in pool.map(lambda schema: ask(server.url, body_of(schema)), schemas(SCHEMAS, 1)):
            counts[status] = counts.get(status, 0) + 1
            if wrong_answer is not None:
                failed += 1
                print(f"wrong: {wrong_answer}"[:400])
    print(f"hostile: {counts}, {time.monotonic() - begun:.0f} s, {before} to {memory(server.process.pid)} MiB")
    return failed > 0


def gaps(url, seed):
    """Seconds between the events of a stream."""
    body = {"prompt": f"The {seed}", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    times = []
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
    return [later - earlier for earlier, later in zip(times, times[1:])]


def streamed(url, schemas_beside):
    """The gaps of streams that run side by side, with these schemas compiled meanwhile."""
    begins, ended = multiprocessing.Event(), multiprocessing.Event()
    # Another process sends them, ready as they are: their size must not hold up the threads that read the streams.
    bodies = [body_of(schema, 1) for schema in schemas_beside]
    other = multiprocessing.Process(target=send_beside, args=(url, bodies, begins, ended))
    other.start()
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = [pool.submit(gaps, url, seed) for seed in range(STREAMS)]
        begins.set()
        found = [gap for stream in streams for gap in stream.result()]
    ended.set()
    other.join()
    return found


def send_beside(url, bodies, begins, ended):
    begins.wait()
    with ThreadPoolExecutor(4) as pool:
        for body in bodies:
            if ended.is_set():
                return
            pool.submit(ask, url, body)
            # 100 of them are spread over the streams.
            time.sleep(0.05)


def beside_streams(server):
    """Compares the gaps of streams, in rounds that alternate."""
    gaps(server.url, 0)
    alone, among = [], []
    for round_ in range(ROUNDS):
        alone.append(sorted(streamed(server.url, [{"type": "boolean"}] * BESIDE)))
        among.append(sorted(streamed(server.url, schemas(BESIDE, 100 + round_))))
    at = lambda part: lambda values: values[min(len(values) - 1, int(part * len(values)))]
    for name, value in [("p50", at(0.5)), ("p99", at(0.99))]:
        plain, beside = statistics.median(map(value, alone)), statistics.median(map(value, among))
        print(f"streams: {name} of the gaps {1e3 * plain:.1f} ms beside {BESIDE} plain schemas, {1e3 * beside:.1f} ms beside {BESIDE} of these: {beside / plain:.3f}")

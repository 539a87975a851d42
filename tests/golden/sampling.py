"""Write sampling.json: sampled continuations of golden checkpoints, with bias, penalties and every filter (f32).

    python sampling.py             rewrite sampling.json in this folder, from the checkpoints that lie here
    python sampling.py --check     compute and compare with what lies here

The logits of a row are those of transformers. They pass through the processors that transformers itself builds from a
generation config without sampling (bias, repetition penalty), through the frequency and the presence penalty, and through the
warpers that it builds from one with sampling (temperature, top-k, top-p, min-p, typical-p).

frequency, presence    logits -= frequency * count, logits -= presence * (count > 0), where count is how often a token was
                       generated, as OpenAI documents it and vLLM computes it.

The token is the first one whose cumulative probability exceeds u(position), tokens in descending order of probability. Random
numbers are Redline's (`number` of diffusion.py). The seed of continuation k > 0 is number k of SplitMix64 from the request's
seed. Of best_of > n continuations, the n with the highest mean log-probability are returned, highest first; log-probabilities
are those of the model, before everything else.

The seed of a request is the first one for which no decision is close: logits that move by NOISE change no token and no set of
kept tokens, no cumulative probability lies within MARGIN of u, and no two means within MARGIN of each other.

sampling.json: a list of {checkpoint, prompt, new, seed, n, best_of, parameters, choices: [{seed, ids, mean_logprob}], tokens};
absent parameters have no effect, tokens is the number of all generated tokens.
"""

import json
import math

import diffusion  # first: through make.py it tells the Hugging Face libraries that there is no network
import make
import torch
from make import HERE, require
from transformers import AutoModelForCausalLM, GenerationConfig

FILE = "sampling.json"
MARGIN = 1e-4
NOISE = 1e-4
TOLERANCE = 1e-4
NEW = 12
BIAS = {3: 4.0, 17: 6.5, 40: 4.5, 77: 6.0, 73: -100.0}
ALL = {
    "temperature": 0.8,
    "top_k": 30,
    "top_p": 0.95,
    "min_p": 0.01,
    "typical_p": 0.9,
    "repetition_penalty": 1.2,
    "frequency_penalty": 0.3,
    "presence_penalty": 0.2,
    "logit_bias": BIAS,
}
# Checkpoint, parameters, n, best_of.
CASES = [
    ("llama-b", {"repetition_penalty": 1.5}, 1, 1),
    ("gpt2-a", {"repetition_penalty": 0.6}, 1, 1),
    ("qwen3-a", {"presence_penalty": 1.5}, 1, 1),
    ("llama-b", {"frequency_penalty": 0.5}, 1, 1),
    ("gpt2-a", {"frequency_penalty": -1.0, "presence_penalty": -0.5}, 1, 1),
    ("qwen3-a", {"logit_bias": BIAS}, 1, 1),
    ("llama-b", {"logit_bias": {9: 100.0}, "repetition_penalty": 3.0}, 1, 1),
    ("gpt2-a", {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.6, "logit_bias": BIAS}, 1, 1),
    ("llama-b", {"temperature": 1.0, "typical_p": 0.2}, 1, 1),
    ("gpt2-a", {"temperature": 0.7, "typical_p": 0.5}, 1, 1),
    ("qwen3-a", {"temperature": 1.5, "typical_p": 0.95}, 1, 1),
    ("llama-b", {"temperature": 1.0, "top_k": 12, "typical_p": 0.6}, 1, 1),
    ("qwen3-a", {"temperature": 1.0, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.7}, 1, 1),
    ("llama-b", ALL, 1, 1),
    ("gpt2-a", ALL, 1, 1),
    ("qwen3-a", ALL, 1, 1),
    ("llama-b", {"temperature": 1.0}, 3, 3),
    ("gpt2-a", {"temperature": 0.9, "top_p": 0.9}, 2, 5),
    ("qwen3-a", ALL, 3, 4),
]


class Close(Exception):
    """A decision is close."""


def processors(net, parameters):
    bias = parameters.get("logit_bias", {})
    config = GenerationConfig(
        do_sample=False,
        repetition_penalty=parameters.get("repetition_penalty", 1.0),
        sequence_bias={(token,): value for token, value in bias.items()} or None,
    )
    return net._get_logits_processor(generation_config=config, input_ids_seq_length=1)


def warpers(net, parameters):
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p")
    given = {name: parameters[name] for name in names if name in parameters}
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **given})
    return net._get_logits_processor(generation_config=config, input_ids_seq_length=1)


def penalised(net, logits, prompt, new, parameters):
    ids = torch.tensor([prompt + new])
    scores = processors(net, parameters)(ids, logits[None].clone())[0]
    counts = torch.bincount(torch.tensor(new, dtype=torch.long), minlength=len(scores)).float()
    scores -= parameters.get("frequency_penalty", 0.0) * counts
    scores -= parameters.get("presence_penalty", 0.0) * (counts > 0)
    return scores


def choose(net, logits, prompt, new, parameters, u):
    """The token, and the kept ones."""
    scores = penalised(net, logits, prompt, new, parameters)
    if "temperature" not in parameters:
        first, second = scores.topk(2)[0].tolist()
        if first - second < 4 * NOISE:
            raise Close
        return int(scores.argmax()), None
    warped = warpers(net, parameters)(torch.tensor([prompt + new]), scores[None])[0]
    probabilities = torch.softmax(warped.double(), 0).tolist()
    kept = sorted((id for id, p in enumerate(probabilities) if p > 0), key=lambda id: -probabilities[id])
    cumulative = 0.0
    token = None
    for id in kept:
        cumulative += probabilities[id]
        if abs(cumulative - u) < MARGIN:
            raise Close
        if token is None and cumulative > u:
            token = id
    return token, set(kept)


def continuation(net, prompt, parameters, seed, noise):
    new, logprobs = [], []
    while len(new) < NEW:
        with torch.no_grad():
            logits = net(torch.tensor([prompt + new]), use_cache=False).logits[0, -1].float()
        u = diffusion.number(seed, len(prompt) + len(new))
        token, kept = choose(net, logits, prompt, new, parameters, u)
        for _ in range(3):
            moved = logits + NOISE * (2 * torch.rand(logits.shape, generator=noise) - 1)
            if choose(net, moved, prompt, new, parameters, u) != (token, kept):
                raise Close
        logprobs.append(float(torch.log_softmax(logits.double(), 0)[token]))
        new.append(token)
    return {"seed": seed, "ids": new, "mean_logprob": math.fsum(logprobs) / len(new)}


def seed_of(seed, number):
    return diffusion.mix((seed + number * diffusion.GOLDEN) & diffusion.WORD) if number else seed


def choices(net, prompt, parameters, seed, n, best_of, noise):
    made = [continuation(net, prompt, parameters, seed_of(seed, k), noise) for k in range(best_of)]
    if best_of == n:
        return made
    made.sort(key=lambda one: -one["mean_logprob"])
    if any(a["mean_logprob"] - b["mean_logprob"] < MARGIN for a, b in zip(made, made[1:])):
        raise Close
    return made[:n]


def make_case(net, name, prompt, parameters, n, best_of):
    noise = torch.Generator().manual_seed(1)
    for seed in range(200):
        try:
            made = choices(net, prompt, parameters, seed, n, best_of, noise)
        except Close:
            continue
        return {
            "checkpoint": name,
            "prompt": prompt,
            "new": NEW,
            "seed": seed,
            "n": n,
            "best_of": best_of,
            "parameters": parameters,
            "choices": made,
            "tokens": best_of * NEW,
        }
    require(False, f"{name}: every seed is close")


def plain(net, case):
    """The ids without bias, penalties and the last filter; they must differ."""
    parameters = {key: case["parameters"][key] for key in ("temperature",) if key in case["parameters"]}
    new = []
    while len(new) < NEW:
        with torch.no_grad():
            logits = net(torch.tensor([case["prompt"] + new]), use_cache=False).logits[0, -1].float()
        u = diffusion.number(case["seed"], len(case["prompt"]) + len(new))
        scores = logits / parameters.get("temperature", 1.0)
        order = scores.argsort(descending=True)
        cumulative = torch.softmax(scores.double(), 0)[order].cumsum(0)
        place = int((cumulative <= u).sum()) if parameters else 0
        new.append(int(order[min(place, len(order) - 1)]))
    return new


def make_all(out):
    made = []
    nets = {}
    for number, (name, parameters, n, best_of) in enumerate(CASES):
        if name not in nets:
            loaded = AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32, attn_implementation="eager")
            nets[name] = loaded.eval()
        net = nets[name]
        generator = torch.Generator().manual_seed(number)
        prompt = torch.randint(0, net.config.vocab_size, (5 + 3 * (number % 4),), generator=generator).tolist()
        case = make_case(net, name, prompt, parameters, n, best_of)
        if set(parameters) != {"temperature"} and best_of == 1:
            require(plain(net, case) != case["choices"][0]["ids"], f"case {number}: parameters without effect")
        made.append(case)
    lines = ",\n".join(f"  {json.dumps(case)}" for case in made)
    (out / FILE).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(made)} requests, {(out / FILE).stat().st_size} bytes")


def differences(ours, theirs):
    a, b = (json.loads((folder / FILE).read_text(encoding="utf-8")) for folder in (ours, theirs))
    require(len(a) == len(b), "another number of requests")
    for number, (x, y) in enumerate(zip(a, b)):
        if any(x[key] != y[key] for key in x.keys() - {"choices"}):
            yield f"request {number}: another one: {x}"
        for one, other in zip(x["choices"], y["choices"], strict=True):
            if (one["seed"], one["ids"]) != (other["seed"], other["ids"]):
                yield f"request {number}: {one} instead of {other}"
            elif not math.isclose(one["mean_logprob"], other["mean_logprob"], abs_tol=TOLERANCE):
                yield f"request {number}: {one['mean_logprob']} instead of {other['mean_logprob']}"


if __name__ == "__main__":
    make.command(__doc__, make_all, differences)

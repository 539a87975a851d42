"""Write likelihood.json: how probable the diffusion checkpoints find labels behind prompts (f32).

    python likelihood.py             rewrite likelihood.json in this folder, from the checkpoints that lie here
    python likelihood.py --check     compute and compare with what lies here

What is computed is LLaDA's bound of the log-likelihood (arXiv 2502.09992, eq. 6). L label tokens behind a prompt; a set
of k of them gives way to masks; its loss is L / k times the sum of their cross entropies. The bound is the mean of that
over k from 1 to L and over all sets of k tokens, its sign turned.

exact    with 2^L - 1 <= samples: this mean, by counting all sets.
sampled  else as `get_log_likelihood.py` has it: n = samples canvases; k runs through k0 + floor(i L / n), i = 0..n-1, and
         round again at L, from a random k0; a random set of k tokens each; the mean of the losses. (The published code
         rounds k0 + i L / n, halves to even, which draws some k more often than others.)

Random numbers are Redline's (`number` of diffusion.py), a function of the seed and a counter:
k0 = 1 + floor(L u(0 of sample n)); the set of canvas i are the k tokens of the smallest u(token of sample i), where
u(t of sample i) has the counter (i << 32) | t.

likelihood.json: by checkpoint a list of {prompt, label, samples, seed, exact, canvases, logprob}; the logprob of a Dream
checkpoint reads the token of position p off row p - 1.
"""

import itertools
import json
import math

import diffusion  # first: through make.py it tells the Hugging Face libraries that there is no network
import make
import torch
from make import HERE, require

FILE = "likelihood.json"
# Label tokens, samples.
CASES = [(1, 128), (1, 1), (2, 128), (3, 7), (4, 128), (3, 6), (6, 16), (9, 128), (17, 24)]
PROMPTS = [1, 7, 12]
TOLERANCE = 1e-5


def uniform(seed, sample, token):
    return diffusion.number(seed, (sample << 32) | token)


def losses(net, prompt, label, sets):
    """L / k times the cross entropies of each set of tokens, one canvas a set."""
    length, shift = len(label), net.family == "dream"
    found = []
    for chosen in sets:
        canvas = torch.tensor(prompt + [net.mask if at in chosen else token for at, token in enumerate(label)])
        logits = net.logits(canvas)
        rows = logits[[len(prompt) + at - shift for at in chosen]]
        wanted = torch.tensor([label[at] for at in chosen])
        loss = torch.nn.functional.cross_entropy(rows, wanted, reduction="none") / (len(chosen) / length)
        found.append(float(loss.double().sum()))
    return found


def exact(net, prompt, label):
    of_numbers = []
    for k in range(1, len(label) + 1):
        found = losses(net, prompt, label, list(itertools.combinations(range(len(label)), k)))
        of_numbers.append(math.fsum(found) / len(found))
    return -math.fsum(of_numbers) / len(of_numbers)


def drawn(length, samples, seed):
    first = 1 + math.floor(uniform(seed, samples, 0) * length)
    sets = []
    for sample in range(samples):
        k = (first + sample * length // samples - 1) % length + 1
        order = sorted(range(length), key=lambda token: uniform(seed, sample, token))
        sets.append(sorted(order[:k]))
    return sets


def make_case(net, number, prompt, label, samples):
    all_of_them = 2 ** len(label) - 1
    if all_of_them <= samples:
        logprob, canvases = exact(net, prompt, label), all_of_them
    else:
        sets = drawn(len(label), samples, number)
        found = losses(net, prompt, label, sets)
        logprob, canvases = -math.fsum(found) / samples, len({tuple(one) for one in sets})
    return {
        "prompt": prompt,
        "label": label,
        "samples": samples,
        "seed": number,
        "exact": all_of_them <= samples,
        "canvases": canvases,
        "logprob": logprob,
    }


def make_checkpoint(name):
    net = diffusion.read_net(HERE / name)
    generator = torch.Generator().manual_seed(1)
    cases = []
    for number, ((length, samples), prompt) in enumerate(zip(CASES, itertools.cycle(PROMPTS))):
        ids = torch.randint(0, net.ids, (prompt + length,), generator=generator)
        ids[ids == net.mask] = 0
        ids = ids.tolist()
        cases.append(make_case(net, number, ids[:prompt], ids[prompt:], samples))
    return cases


def make_all(out):
    names = [checkpoint.name for checkpoint in diffusion.CHECKPOINTS]
    made = {name: make_checkpoint(name) for name in names}
    lines = [f'  "{name}": [\n' + ",\n".join(f"    {json.dumps(case)}" for case in made[name]) + "\n  ]" for name in names]
    (out / FILE).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{sum(map(len, made.values()))} labels, {(out / FILE).stat().st_size} bytes")


def differences(ours, theirs):
    a, b = (json.loads((folder / FILE).read_text(encoding="utf-8")) for folder in (ours, theirs))
    require(a.keys() == b.keys(), "other checkpoints")
    for name in a:
        for x, y in zip(a[name], b[name], strict=True):
            if any(x[key] != y[key] for key in x.keys() - {"logprob"}):
                yield f"{name}: another case: {x}"
            elif not math.isclose(x["logprob"], y["logprob"], rel_tol=TOLERANCE):
                yield f"{name}: {x['logprob']} instead of {y['logprob']}"


if __name__ == "__main__":
    make.command(__doc__, make_all, differences)

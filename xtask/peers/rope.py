"""Rotary position embedding of a Llama `config.json`."""

import math


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def divisors(config):
    """What `rope_scaling` divides the rotation frequency of each pair of dimensions by; None without scaling. Of Gemma 4, whose
    rotation leaves out pairs of wide heads, such large numbers that nothing turns."""
    if config["model_type"] == "gemma4_text":
        pairs = config["global_head_dim"] // 2
        rotated = int(pairs * config["rope_parameters"]["full_attention"]["partial_rotary_factor"])
        return [1.0] * rotated + [1e30] * (pairs - rotated)
    scaling = config.get("rope_scaling")
    if not scaling:
        return None
    if scaling.get("rope_type") != "llama3":
        raise ValueError(f"`rope_scaling` is {scaling}\n\nhint: llama3 can be compared")
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    size, known = head_dim(config), scaling["original_max_position_embeddings"]
    values = []
    for index in range(0, size, 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (index / size)
        smooth = min(max((known / wavelength - low) / (high - low), 0), 1)
        values.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return values


def frequencies(config):
    """Radians per position of each pair of dimensions."""
    size = head_dim(config)
    plain = [config["rope_theta"] ** (-index / size) for index in range(0, size, 2)]
    return [value / by for value, by in zip(plain, divisors(config) or [1] * len(plain), strict=True)]

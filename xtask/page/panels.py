"""Fills in each panel, and compares what it shows with what the API answers."""

import json
import re

from playwright.sync_api import expect

NUMBER = re.compile(r"^\d")


def shown(p):
    """A probability as the page writes it."""
    if p == 0 or p >= 0.0001:
        return f"{p:.4f}"
    return re.sub(r"e-0?", "e-", f"{p:.1e}")


def send(panel):
    """Sends the form and waits for the end of its answer."""
    panel.locator("form [type=submit]").click()
    expect(panel.locator(".result details")).to_be_attached(timeout=30_000)
    expect(panel.locator(".result")).to_have_attribute("aria-busy", "false")
    assert panel.locator(".problem").count() == 0, panel.locator(".problem").inner_text()


def asked(panel):
    """Path and body of the request that the panel shows."""
    first, body = panel.locator(".result details pre").text_content().split("\n", 1)
    return first.removeprefix("POST /"), json.loads(body)


def values(panel):
    return panel.locator(".result .bars .value").all_text_contents()


def told(panel, name):
    """The value of a fact below the result."""
    facts = panel.locator(".result > .facts > div", has=panel.page.get_by_text(name, exact=True))
    return facts.last.locator("dd").text_content()


def scores(page, server):
    panel = page.locator("#scores")
    panel.locator("[name=query]").fill("And God said, Let there be")
    panel.locator("[name=items]").fill(" light\n darkness over all the deep waters of the earth")
    panel.locator("[name=labels]").fill(" and\n in\n xylophone")
    send(panel)
    path, body = asked(panel)
    assert body["query"] == "And God said, Let there be" and body["labels"] == [" and", " in", " xylophone"], body
    answer = server.post(path, body)
    assert values(panel) == [shown(p) for row in answer["scores"] for p in row], answer
    assert told(panel, "Prompt tokens") == str(answer["usage"]["prompt_tokens"])
    widths = [float(re.search(r"([\d.]+)%", style)[1]) for style in styles(panel)]
    flat = [p for row in answer["scores"] for p in row]
    assert all(abs(width - 100 * p) < 0.01 for width, p in zip(widths, flat, strict=True)), widths


def styles(panel):
    return panel.locator(".result .fill").evaluate_all("all => all.map(e => e.getAttribute('style'))")


def decisions(page, server):
    panel = page.locator("#decisions")
    panel.locator("#add-question").click()
    panel.locator(".question .instructions").last.fill("Is anyone angry?")
    panel.locator(".question").nth(1).locator(".remove").click()
    send(panel)
    path, body = asked(panel)
    assert [question["type"] for question in body["questions"]] == ["predicate", "score", "predicate"], body
    answer = server.post(path, body)
    expect_values = []
    for one in answer["answers"]:
        if one["type"] == "predicate":
            expect_values += [one["probability"], 1 - one["probability"]]
        else:
            expect_values += [option["probability"] for option in one["probabilities"]]
    assert values(panel) == [shown(p) for p in expect_values], answer
    assert told(panel, "Expected level, from 0") == f"{answer['answers'][1]['score']:.2f}"
    assert told(panel, "Prompt tokens") == str(answer["usage"]["input_tokens"])


def whole(body):
    """The request without a stream."""
    return {name: value for name, value in body.items() if not name.startswith("stream")}


# Times and counts below an answer of the demo model, and of the demo model that fills masks.
NUMBERS = ("Latency", "First token", "Tokens/s after it", "Cached tokens")
MASKED_NUMBERS = ("Latency", "First text", "Tokens/s", "Cached tokens")


def of_generation(panel, usage, numbers=NUMBERS):
    assert told(panel, "Prompt tokens") == str(usage["prompt_tokens"])
    assert told(panel, "New tokens") == str(usage["completion_tokens"])
    for name in numbers:
        assert NUMBER.match(told(panel, name)), name


def completion(page, server, numbers=NUMBERS):
    panel = page.locator("#completion")
    send(panel)
    path, body = asked(panel)
    answer = server.post(path, whole(body))
    assert panel.locator(".new").text_content() == answer["choices"][0]["text"], answer
    of_generation(panel, answer["usage"], numbers)


def chat(page, server):
    panel = page.locator("#chat")
    send(panel)
    expect(panel.locator("[name=message]")).to_have_value("")
    panel.locator("[name=message]").fill("And who is his son?")
    send(panel)
    path, body = asked(panel)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"], body
    answer = server.post(path, whole(body))
    turns = panel.locator("#conversation .text").all_text_contents()
    assert len(turns) == 4 and turns[3] == answer["choices"][0]["message"]["content"], turns
    of_generation(panel, answer["usage"])


def diffusion(page, server):
    """Fills a canvas with a hole in its prompt, in several blocks. The cells must be those of the last event, and the text that of the API."""
    panel = page.locator("#diffusion")
    for name, value in (("prompt", "The <|mask|> of Babylon said unto"), ("max_tokens", "48"), ("block_length", "16"), ("threshold", "0.4")):
        panel.locator(f"[name={name}]").fill(value)
    panel.locator("[name=cache]").select_option("dual")
    send(panel)
    path, body = asked(panel)
    assert (body["block_length"], body["threshold"], body["cache"]) == (16, 0.4, "dual") and "steps" not in body, body
    answer = server.post(path, whole(body))
    assert panel.locator(".final").text_content() == answer["choices"][0]["text"], answer
    of_generation(panel, answer["usage"], MASKED_NUMBERS)
    assert told(panel, "Passes") == str(answer["meta"]["passes"]) and told(panel, "Order") == answer["meta"]["algorithm"]
    cells = panel.locator(".canvas .cell")
    assert cells.count() == answer["usage"]["prompt_tokens"] + 48
    # After the end of the text, masks may be left.
    left = panel.locator(".canvas .masked").count()
    assert panel.locator(".canvas + .hint").text_content() == (
        f"Pass {answer['meta']['passes']}: {left} of {cells.count()} positions are masks."
    )
    given = "".join(panel.locator(".canvas .given").all_text_contents())
    assert given.split() == ["<|bos|>The", "of", "Babylon", "said", "unto"], given
    assert answer["choices"][0]["text"][:8] in "".join(cells.all_text_contents()), "the hole is filled"


# Panels of the demo model, and of the demo model that fills masks.
ALL = {"scores": scores, "decisions": decisions, "completion": completion, "chat": chat}
MASKED = {"diffusion": diffusion}

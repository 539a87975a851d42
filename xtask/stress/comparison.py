"""Compares answers with earlier answers to the same requests."""

import re

# Ids and times, and how many tokens came from the prefix cache or were added to it, which depends on what ran before.
MASKED = re.compile(rb'"(?:id|item_id)":"[^"]*"|"created(?:_at)?":\d+|"(?:cached|cache_write)_tokens":\d+')


def same(answer):
    """What of an answer must not change: its status and its bytes, except for ids, times and cached tokens."""
    return answer.status, MASKED.sub(b"", answer.body)


def references(report, answers):
    """What later answers to the same requests must be. All of these must be good, so that failures are not compared with failures."""
    report.equal("first answers that failed", sum(not answer.good() for answer in answers), 0)
    return [same(answer) for answer in answers]


def differing(report, name, expected, answers):
    """How many answers differ from what they must be. The first that differs is shown in the report."""
    found = [same(answer) for answer in answers]
    places = [place for place, (wanted, had) in enumerate(zip(expected, found, strict=True)) if wanted != had]
    if places:
        report.note(f"{name}: the first is number {places[0]}; {difference(expected[places[0]], found[places[0]])}")
    return len(places)


def compare(report, name, expected, answers):
    """Reports how many answers differ, which must be none."""
    report.equal(name, differing(report, name, expected, answers), 0)


def difference(wanted, found):
    """Where two answers begin to differ."""
    if wanted[0] != found[0]:
        return f"its status is {found[0]} instead of {wanted[0]}: {found[1][:200].decode(errors='replace')}"
    pairs = enumerate(zip(wanted[1], found[1], strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(wanted[1]), len(found[1])))
    here, there = (bytes(text[max(0, at - 40) : at + 40]).decode(errors="replace") for text in (found[1], wanted[1]))
    return f"{here!r} instead of {there!r}"

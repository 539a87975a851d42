"""The client of TypeSafe: typed questions about a state."""

import typesafe_sdk


def check(url, _):
    client = typesafe_sdk.TypeSafeClient(base_url=url, api_key="none", compression="zstd")
    answer = client.system_one(
        state={"note": "I was charged twice."},
        questions={
            "refund": typesafe_sdk.Noul(instructions="Is a refund due?"),
            "team": typesafe_sdk.Choice(instructions="Which team?", criteria={"billing": "payments", "sales": None}),
            "urgency": typesafe_sdk.Score(instructions="How urgent?", criteria=["low", "middle", "high"]),
        },
    )
    assert answer.model == "demo" and answer.usage.output_tokens == 0
    assert 0 < answer.nouls["refund"].noul < 1
    assert answer.choices["team"].choice in ("billing", "sales")
    assert abs(sum(answer.choices["team"].probabilities.values()) - 1) < 1e-4
    assert 0 <= answer.scores["urgency"].score <= 2
    refused(typesafe_sdk.TypeSafeUnprocessableEntityError, 422, lambda: client.system_one(
        state="s", questions={"a": {"type": "score", "criteria": ["one"]}}))
    refused(typesafe_sdk.TypeSafeAPIError, 413, lambda: client.system_one(
        state="word " * 3000, questions={"a": {"type": "noul", "instructions": "q"}}))


def refused(kind, status, call):
    try:
        call()
    except kind as error:
        assert error.status == status, error
    else:
        raise AssertionError(f"no error with status {status}")

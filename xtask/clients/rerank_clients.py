"""Clients that rerank, and litellm, which also chats."""

import os

import cohere

# Prices of models, which litellm would fetch from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

DOCUMENTS = ["It rains.", "Henry is king.", "A horse."]


def check_cohere(url, _):
    client = cohere.ClientV2(api_key="none", base_url=url)
    ask = lambda **more: client.rerank(model="demo", query="Who is king?", documents=DOCUMENTS, **more).results
    ranked = ask()
    assert sorted(one.index for one in ranked) == [0, 1, 2]
    scores = [one.relevance_score for one in ranked]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    first = ask(top_n=1, max_tokens_per_doc=64)
    assert [one.index for one in first] == [ranked[0].index]


def check_litellm(url, _):
    base = {"api_base": f"{url}/v1", "api_key": "none"}
    answer = litellm.completion(
        model="hosted_vllm/demo", messages=[{"role": "user", "content": "Who is king?"}], max_tokens=8, **base
    )
    assert answer.choices[0].message.content and answer.usage.completion_tokens > 0
    parts = litellm.completion(
        model="hosted_vllm/demo", messages=[{"role": "user", "content": "Who is king?"}], max_tokens=8, stream=True, **base
    )
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert text == answer.choices[0].message.content
    ranked = litellm.rerank(model="hosted_vllm/demo", query="Who is king?", documents=DOCUMENTS, top_n=2, **base)
    assert len(ranked.results) == 2 and ranked.results[0]["relevance_score"] >= ranked.results[1]["relevance_score"]

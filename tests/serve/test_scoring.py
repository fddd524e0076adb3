"""logit_bias, `max_tokens: 0` and the log-probabilities of prompts, as OpenAI's API has them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.serve.conftest import LENGTH, Running, in_threads, recite, refusal

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
X = ord("x")


def test_a_bias_forces_or_bans_a_token(reciter: Running) -> None:
    client = reciter.client()
    asked: dict[str, Any] = {"model": "reciter", "prompt": "a", "max_tokens": 4, "temperature": 0}
    assert client.completions.create(**asked, logit_bias={str(X): 100}).choices[0].text == "xxxx"
    assert client.completions.create(**asked, logit_bias={str(ord("b")): -100}).choices[0].text[:1] != "b"
    assert client.completions.create(**asked, logit_bias={str(X): 0}).choices[0].text == "bcde"
    messages: Any = [{"role": "user", "content": "Hello"}]
    done = client.chat.completions.create(
        model="reciter", messages=messages, max_tokens=3, temperature=1, logit_bias={str(X): 100}
    )
    assert done.choices[0].message.content == "xxx"


def test_sequences_of_a_batch_have_their_own(reciter: Running) -> None:
    def ask(token: int) -> tuple[int, str]:
        bias = {str(token): 100} if token else None
        return token, reciter.complete(logit_bias=bias).json()["choices"][0]["text"]

    tokens = [0, *range(ord("a"), ord("f"))]
    assert dict(in_threads(ask, tokens)) == {t: chr(t) * 40 if t else recite("a", 40) for t in tokens}


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("bias", "code", "param"),
    [
        ({"258": 1}, "D001", "logit_bias.258"),
        ({"9999999999": 1}, "D001", "logit_bias.9999999999"),
        ({"-1": 1}, "C003", "logit_bias.-1"),
        ({"x": 1}, "C003", "logit_bias.x"),
        ({"5": 100.5}, "C003", "logit_bias.5"),
        ({"5": "1"}, "C002", "logit_bias.5"),
        ([5], "C002", "logit_bias"),
        ({str(i): 1 for i in range(90_000)}, "C003", "logit_bias"),
    ],
)
def test_a_wrong_bias(reciter: Running, path: str, bias: Any, code: str, param: str) -> None:
    more = {"messages": [{"role": "user", "content": "a"}]} if path == CHAT else {"prompt": "a"}
    answer = reciter.post(path, {"model": "reciter", "max_tokens": 1, "logit_bias": bias, **more})
    assert refusal(answer) == (400, code), answer.text
    assert answer.json()["error"]["param"] == param


def test_no_tokens_at_all(reciter: Running) -> None:
    done = reciter.complete(max_tokens=0).json()
    assert (done["choices"][0]["text"], done["choices"][0]["finish_reason"]) == ("", "length")
    assert done["usage"] == {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
    assert reciter.complete(max_tokens=0, echo=True).json()["choices"][0]["text"] == "a"
    assert reciter.complete(max_tokens=0, prompt="a" * LENGTH, echo=True, logprobs=0).status_code == 200
    body = {"model": "reciter", "messages": [{"role": "user", "content": "a"}], "max_tokens": 0}
    assert refusal(reciter.post(CHAT, body)) == (400, "C003")


def expected(server: Running, text: str) -> list[float]:
    with torch.no_grad():
        model, ids = server.served.model, torch.tensor([list(text.encode())])
        logp = model.lm(model.extend(model.start(batch=1, capacity=ids.shape[1]), ids)).float().log_softmax(-1)
    return logp[0, :-1].gather(-1, ids[0, 1:, None])[:, 0].tolist()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("new", [0, 2])
def test_a_prompt_is_scored(reciter: Running, new: int, stream: bool) -> None:
    asked: dict[str, Any] = {"model": "reciter", "prompt": "abx", "temperature": 0, "echo": True, "logprobs": 2}
    client = reciter.client()
    if stream:
        chunks = list(client.completions.create(**asked, max_tokens=new, stream=True))
        text = "".join(chunk.choices[0].text for chunk in chunks)
        found: dict[str, list[Any]] = {}
        for chunk in chunks:
            for name, values in chunk.choices[0].logprobs.model_dump().items():
                found[name] = found.get(name, []) + values
    else:
        (choice,) = client.completions.create(**asked, max_tokens=new).choices
        text, found = choice.text, choice.logprobs.model_dump()
    written = "abx" + recite("x", new)
    assert text == written == "".join(found["tokens"])
    assert found["text_offset"] == list(range(len(written)))
    assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
    assert found["token_logprobs"][1:3] == pytest.approx(expected(reciter, "abx"), abs=1e-4)
    for letter, value, top in zip(written[1:], found["token_logprobs"][1:], found["top_logprobs"][1:], strict=True):
        assert top[letter] == value and 2 <= len(top) <= 3
    assert found["token_logprobs"][2] < found["token_logprobs"][1]  # x does not follow b
    assert all(math.isfinite(value) for value in found["token_logprobs"][1:])


def test_several_prompts_and_a_single_token(reciter: Running) -> None:
    body = {"model": "reciter", "prompt": ["a", "ab"], "max_tokens": 0, "echo": True, "logprobs": 0, "n": 2}
    choices = reciter.post(TEXT, body).json()["choices"]
    assert [len(choice["logprobs"]["tokens"]) for choice in choices] == [1, 1, 2, 2]
    assert choices[0]["logprobs"]["top_logprobs"] is None

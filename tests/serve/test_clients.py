"""OpenAI's client and curl get what OpenAI's API promises."""

from __future__ import annotations

import json
import math
import subprocess

import openai
import pytest

from tests.serve.conftest import END, LENGTH, Running, recite

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def client(reciter: Running) -> openai.OpenAI:
    return reciter.client()


# --- chat


def test_chat(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(model="reciter", messages=HELLO, max_tokens=8, temperature=0)
    (choice,) = done.choices
    assert (done.object, done.model, done.id[:9]) == ("chat.completion", "reciter", "chatcmpl-")
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert (choice.message.role, choice.message.content) == ("assistant", recite("\n", 8))
    assert done.usage is not None
    prompt = len("user\nHello\nassistant\n") + 3  # and three special tokens: bytes are tokens here
    assert done.usage.model_dump(exclude_unset=True) == {
        "prompt_tokens": prompt,
        "completion_tokens": 8,
        "total_tokens": prompt + 8,
    }


def test_a_sequence_that_ends_by_itself(client: openai.OpenAI) -> None:
    done = client.completions.create(model="reciter", prompt="xA", max_tokens=50, temperature=0)
    assert (done.choices[0].text, done.choices[0].finish_reason) == ("BC.", "stop")
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (2, 4)  # with the end-of-sequence token


def test_without_max_tokens_a_chat_fills_the_context(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(model="reciter", messages=HELLO, temperature=0)
    assert done.usage is not None
    assert done.usage.total_tokens == LENGTH
    assert done.choices[0].finish_reason == "length"


def test_max_completion_tokens_and_parts_of_text(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]
    asked = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]
    done = client.chat.completions.create(model="reciter", messages=asked, max_completion_tokens=3, temperature=0)  # type: ignore[arg-type,call-overload]
    assert done.choices[0].message.content == "abc"
    text = "system\nbe brief\nuser\nHello\nassistant\n"
    assert done.usage.prompt_tokens == len(text) + 5


def test_a_stream_of_a_chat(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(model="reciter", messages=HELLO, max_tokens=6, temperature=0, stream=True)
    )
    first, last = chunks[0].choices[0], chunks[-1].choices[0]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert (first.delta.role, first.delta.content, first.finish_reason) == ("assistant", "", None)
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == recite("\n", 6)
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert last.finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)
    assert len(chunks) == 7  # a chunk for each token: nothing is held back


def test_a_stream_with_usage(client: openai.OpenAI) -> None:
    *chunks, last = client.chat.completions.create(
        model="reciter", messages=HELLO, max_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    assert all(chunk.usage is None for chunk in chunks)
    assert all("usage" in chunk.model_fields_set for chunk in chunks)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.completion_tokens, last.usage.total_tokens) == (4, 24 + 4)


def test_a_stream_on_the_wire(reciter: Running) -> None:
    body = {"model": "reciter", "prompt": "a", "max_tokens": 2, "temperature": 0, "stream": True}
    answer = reciter.post("/v1/completions", body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    *events, empty = answer.text.split("\n\n")
    assert empty == ""
    assert events[-1] == "data: [DONE]"
    read = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert [event["choices"][0]["text"] for event in read] == ["b", "c"]
    assert [event["choices"][0]["finish_reason"] for event in read] == [None, "length"]
    assert all("usage" not in event for event in read)


def test_several_completions(client: openai.OpenAI) -> None:
    asked = {"model": "reciter", "messages": HELLO, "max_tokens": 12, "temperature": 2.0, "seed": 5}
    done = client.chat.completions.create(n=3, **asked)  # type: ignore[call-overload]
    texts = [choice.message.content for choice in done.choices]
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert done.usage.completion_tokens <= 36
    again = client.chat.completions.create(n=3, **asked)  # type: ignore[call-overload]
    assert [choice.message.content for choice in again.choices] == texts
    parts = dict.fromkeys(range(3), "")
    for chunk in client.chat.completions.create(n=3, stream=True, **asked):  # type: ignore[call-overload]
        for choice in chunk.choices:
            parts[choice.index] += choice.delta.content or ""
    assert list(parts.values()) == texts
    other = client.chat.completions.create(n=1, **(asked | {"seed": 6}))  # type: ignore[call-overload]
    assert other.choices[0].message.content != texts[0]


# --- completions


def test_completions(client: openai.OpenAI) -> None:
    done = client.completions.create(model="reciter", prompt="xyz", temperature=0)
    assert (done.object, done.id[:5]) == ("text_completion", "cmpl-")
    assert (done.choices[0].text, done.choices[0].finish_reason) == (recite("z", 16), "length")


def test_prompts_of_every_kind(client: openai.OpenAI) -> None:
    def texts(prompt: object, **more: object) -> list[str]:
        done = client.completions.create(model="reciter", prompt=prompt, max_tokens=3, temperature=0, **more)  # type: ignore[call-overload]
        assert [choice.index for choice in done.choices] == list(range(len(done.choices)))
        return [choice.text for choice in done.choices]

    assert texts("k") == ["lmn"]
    assert texts(["k", "p"]) == ["lmn", "qrs"]
    assert texts([ord("k")]) == ["lmn"]
    assert texts([[ord("k")], [ord("p")]]) == ["lmn", "qrs"]
    assert texts(["k", "p"], n=2) == ["lmn", "lmn", "qrs", "qrs"]
    assert texts(["k", "p"], echo=True) == ["klmn", "pqrs"]
    assert texts("") == texts([END]) == ["abc"]


def test_echo_in_a_stream(client: openai.OpenAI) -> None:
    chunks = client.completions.create(
        model="reciter", prompt="xyz", max_tokens=2, temperature=0, echo=True, stream=True
    )
    assert [chunk.choices[0].text for chunk in chunks] == ["xyz", "a", "b"]


@pytest.mark.parametrize(
    ("stop", "text", "finish"),
    [
        ("h", "efg", "stop"),
        (["zzz", "gh"], "ef", "stop"),
        (["hi", "g"], "ef", "stop"),
        (["ZZ"], recite("d", 16), "length"),
        ("e", "", "stop"),
        (None, recite("d", 16), "length"),
    ],
)
def test_stop_strings(client: openai.OpenAI, stop: object, text: str, finish: str) -> None:
    asked = {"model": "reciter", "prompt": "abcd", "temperature": 0, "stop": stop}
    done = client.completions.create(**asked)  # type: ignore[call-overload]
    assert (done.choices[0].text, done.choices[0].finish_reason) == (text, finish)
    chunks = list(client.completions.create(stream=True, **asked))  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == finish


def test_settings_reach_the_engine(client: openai.OpenAI) -> None:
    """Each setting alone changes the completion; its neutral value does not."""

    def write(**more: object) -> str:
        asked = {"model": "reciter", "prompt": "a", "max_tokens": 40, "seed": 1, "temperature": 2}
        done = client.completions.create(**(asked | more))  # type: ignore[call-overload]
        return str(done.choices[0].text)

    plain, sure = write(), recite("a", 40)
    assert plain != sure
    for neutral in (
        {"top_p": 1},
        {"extra_body": {"top_k": 0}},
        {"extra_body": {"top_k": -1}},
        {"extra_body": {"min_p": 0}},
        {"presence_penalty": 0, "frequency_penalty": 0},
        {"extra_body": {"repetition_penalty": 1}},
    ):
        assert write(**neutral) == plain
    assert write(temperature=0) == sure
    assert write(top_p=0.0) == sure
    assert write(extra_body={"top_k": 1}) == sure
    assert write(extra_body={"min_p": 0.9}) == sure
    assert write(seed=2) != plain
    assert write(presence_penalty=2) != plain
    assert write(frequency_penalty=2) != plain
    assert write(extra_body={"repetition_penalty": 10}) != plain
    assert write(temperature=1) != plain


def test_fields_that_change_nothing_are_ignored(client: openai.OpenAI) -> None:
    more = {"user": "me", "metadata": {"a": "b"}, "store": False, "tool_choice": "auto", "parallel_tool_calls": True}
    more["best_of"] = 1
    done = client.completions.create(model="reciter", prompt="a", max_tokens=2, temperature=0, extra_body=more)
    assert done.choices[0].text == "bc"


def test_a_response_can_be_sent_back_unchanged(client: openai.OpenAI) -> None:
    """With its fields that are null, as the client dumps it."""
    first = client.chat.completions.create(model="reciter", messages=HELLO, max_tokens=2, temperature=0)
    told = [*HELLO, first.choices[0].message.model_dump(), {"role": "user", "content": "x"}]
    done = client.chat.completions.create(model="reciter", messages=told, max_tokens=2, temperature=0)  # type: ignore[arg-type]
    assert done.choices[0].message.content == "ab"


def test_null_is_the_default(reciter: Running) -> None:
    names = (
        *("stream", "stream_options", "n", "stop", "top_p", "top_k", "min_p", "seed", "presence_penalty"),
        *("frequency_penalty", "response_format", "echo", "logprobs", "logit_bias", "suffix", "best_of"),
    )
    body = {"model": "reciter", "prompt": "a", "max_tokens": 2, "temperature": 0} | dict.fromkeys(names)
    assert reciter.post("/v1/completions", body).json()["choices"][0]["text"] == "bc"
    body = {"model": "reciter", "prompt": "a", "temperature": None, "max_tokens": None, "seed": 1}
    assert reciter.post("/v1/completions", body).json()["usage"]["completion_tokens"] == 16


# --- log-probabilities


def test_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    asked = {"model": "reciter", "messages": HELLO, "max_tokens": 4, "temperature": 0, "logprobs": True}
    done = client.chat.completions.create(top_logprobs=3, **asked)  # type: ignore[call-overload]
    entries = done.choices[0].logprobs.content
    assert [entry.token for entry in entries] == list("abcd")
    for entry in entries:
        assert bytes(entry.bytes).decode() == entry.token
        assert -0.2 < entry.logprob < 0
        tops = [top.logprob for top in entry.top_logprobs]
        assert len(tops) == 3
        assert tops == sorted(tops, reverse=True)
        assert (entry.top_logprobs[0].token, tops[0]) == (entry.token, entry.logprob)
        assert sum(map(math.exp, tops)) < 1
    bare = client.chat.completions.create(**asked).choices[0].logprobs.content  # type: ignore[call-overload]
    assert [(entry.token, entry.logprob, entry.top_logprobs) for entry in bare] == [
        (entry.token, pytest.approx(entry.logprob, abs=1e-5), []) for entry in entries
    ]
    streamed = [
        entry
        for chunk in client.chat.completions.create(top_logprobs=3, stream=True, **asked)  # type: ignore[call-overload]
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert [(entry.token, len(entry.top_logprobs)) for entry in streamed] == [(letter, 3) for letter in "abcd"]


def test_probabilities_of_a_completion(client: openai.OpenAI) -> None:
    asked = {"model": "reciter", "prompt": "xA", "max_tokens": 9, "temperature": 0}
    found = client.completions.create(logprobs=2, **asked).choices[0].logprobs  # type: ignore[call-overload]
    assert found.tokens == ["B", "C", "."]  # without the end-of-sequence token
    assert found.text_offset == [0, 1, 2]
    assert all(-0.2 < value < 0 for value in found.token_logprobs)
    assert all(len(top) == 2 for top in found.top_logprobs)
    assert [top[token] for top, token in zip(found.top_logprobs, found.tokens, strict=True)] == found.token_logprobs
    bare = client.completions.create(logprobs=0, **asked).choices[0].logprobs  # type: ignore[call-overload]
    assert (bare.tokens, bare.top_logprobs) == (["B", "C", "."], None)
    offsets = [
        offset
        for chunk in client.completions.create(logprobs=1, stream=True, **asked)  # type: ignore[call-overload]
        if chunk.choices[0].logprobs
        for offset in chunk.choices[0].logprobs.text_offset
    ]
    assert offsets == [0, 1, 2]


def test_a_token_that_was_drawn_is_always_among_its_alternatives(client: openai.OpenAI) -> None:
    done = client.completions.create(
        model="reciter", prompt="a", max_tokens=30, temperature=2, seed=1, logprobs=1, stop="\N{REPLACEMENT CHARACTER}"
    )
    found = done.choices[0].logprobs
    assert found is not None
    assert {len(top) for top in found.top_logprobs or ()} == {1, 2}
    for top, token, value in zip(found.top_logprobs or (), found.tokens or (), found.token_logprobs or (), strict=True):
        assert top[token] == value


# --- models


def test_models(client: openai.OpenAI, reciter: Running) -> None:
    (card,) = client.models.list().data
    assert (card.id, card.object, card.owned_by) == ("reciter", "model", "headway")
    assert client.models.retrieve("reciter") == card
    assert reciter.get("/v1/models/reciter").json()["can"] == ["chat", "complete"]
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found"


# --- errors


def test_errors_have_the_shape_that_clients_expect(client: openai.OpenAI, reciter: Running) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        client.completions.create(model="reciter", prompt="a", temperature=3)
    assert (wrong.value.code, wrong.value.param, wrong.value.type) == ("C003", "temperature", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="reciter", prompt="a" * 600)
    assert long.value.code == "D001" and "600" in long.value.message and "512" in long.value.message
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-4", prompt="a")
    with pytest.raises(openai.AuthenticationError) as key:
        reciter.client().with_options(api_key="wrong").models.list()
    assert key.value.code == "invalid_api_key"


def test_curl(reciter: Running) -> None:
    body = json.dumps({"model": "reciter", "messages": HELLO, "max_tokens": 5, "temperature": 0})
    words = ["curl", "-sS", "--noproxy", "*", f"{reciter.url}/v1/chat/completions", "-d", body]
    words += ["-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {reciter.key}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "abcde"

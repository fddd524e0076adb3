"""/v1/responses with OpenAI's client: items, events, what the server remembers, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serve.conftest import LENGTH, Running, recite, refusal, until
from tests.serve.speakers import TEMPLATES, say, speaking, weather

PATH = "/v1/responses"
TOOL = {"type": "function", **weather()["function"], "strict": True}
ULM = {"city": "Ulm", "days": 2}


@pytest.fixture(scope="module")
def client(reciter: Running) -> openai.OpenAI:
    return reciter.client()


@pytest.fixture(scope="module")
def hermes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with speaking(tmp_path_factory.mktemp("responses"), TEMPLATES["hermes"], responses=3) as made:
        yield made


def test_a_text(client: openai.OpenAI) -> None:
    done = client.responses.create(model="reciter", input="A", max_output_tokens=8, temperature=0, metadata={"a": "b"})
    assert (done.object, done.model, done.id[:5], done.status) == ("response", "reciter", "resp_", "incomplete")
    assert done.incomplete_details is not None and done.incomplete_details.reason == "max_output_tokens"
    assert done.output_text == recite("\n", 8)
    (item,) = done.output
    assert (item.type, item.status, done.metadata, done.temperature) == ("message", "incomplete", {"a": "b"}, 0)
    assert done.usage is not None
    prompt = len("user\nA\nassistant\n") + 3
    assert (done.usage.input_tokens, done.usage.output_tokens) == (prompt, 8)
    assert done.usage.total_tokens == prompt + 8


def test_items_are_messages(reciter: Running, client: openai.OpenAI) -> None:
    """The prompt is that of the same conversation as a chat."""
    items = [
        {"role": "user", "content": "Hello"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "A"}, {"type": "input_text", "text": "B"}]},
    ]
    done = client.responses.create(model="reciter", input=items, instructions="be brief", max_output_tokens=1)  # type: ignore[arg-type]
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "AB"},
    ]
    chat = client.chat.completions.create(model="reciter", messages=messages, max_tokens=1)  # type: ignore[arg-type]
    assert done.usage is not None and chat.usage is not None
    assert done.usage.input_tokens == chat.usage.prompt_tokens
    assert done.instructions == "be brief"


def test_a_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="reciter", input="A", max_output_tokens=5, temperature=0) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.content_part.added"),
    ]
    assert kinds[4:-4] == ["response.output_text.delta"] * 5
    assert kinds[-4:] == [
        *("response.output_text.done", "response.content_part.done"),
        *("response.output_item.done", "response.incomplete"),
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == recite("\n", 5)
    assert events[-1].type == "response.incomplete"
    final = events[-1].response
    assert final.output_text == recite("\n", 5)
    assert final.usage is not None and final.usage.output_tokens == 5


def test_events_on_the_wire(reciter: Running) -> None:
    body = {"model": "reciter", "input": "A", "max_output_tokens": 1, "stream": True}
    answer = reciter.post(PATH, body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


def test_a_conversation_that_the_server_remembers(client: openai.OpenAI) -> None:
    first = client.responses.create(
        model="reciter", input="Hello", instructions="short", max_output_tokens=3, temperature=0
    )
    second = client.responses.create(
        model="reciter", input="Go on", previous_response_id=first.id, max_output_tokens=1, temperature=0
    )
    told = f"user\nHello\nassistant\n{first.output_text}\nuser\nGo on\nassistant\n"  # without the instructions
    assert second.usage is not None and second.usage.input_tokens == len(told) + 7
    assert second.usage.input_tokens_details.cached_tokens >= 0
    assert second.previous_response_id == first.id
    assert client.responses.retrieve(first.id).output_text == first.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="resp_"):
        client.responses.create(model="reciter", input="Go on", previous_response_id=first.id)
    assert (
        client.responses.create(  # what was said before is still known
            model="reciter", input="More", previous_response_id=second.id, max_output_tokens=1
        ).usage.input_tokens
        > second.usage.input_tokens
    )  # type: ignore[union-attr]


def test_what_is_not_stored_is_not_found(client: openai.OpenAI) -> None:
    done = client.responses.create(model="reciter", input="A", store=False, max_output_tokens=1)
    assert done.store is False  # type: ignore[attr-defined]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(done.id)


def test_the_oldest_responses_are_forgotten(hermes: Running) -> None:
    client = hermes.client()
    ids = [client.responses.create(model="speaker", input="A", max_output_tokens=1).id for _ in range(4)]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(ids[0])
    assert [client.responses.retrieve(each).id for each in ids[1:]] == ids[1:]


def test_a_call_of_a_function(hermes: Running) -> None:
    client = hermes.client()
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Weather?"}], "model": "speaker"}
    chat["tools"] = [{"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}]
    compact = '{"name": "weather", "arguments": {"city":"Ulm","days":2}}'  # as the grammar of a strict function has it
    say(hermes, chat, f"One moment.<tool_call>\n{compact}\n</tool_call>")
    asked: dict[str, Any] = {"model": "speaker", "input": "Weather?", "tools": [TOOL], "temperature": 0}
    done = client.responses.create(**asked)
    message, function = done.output
    assert (done.status, message.type, done.output_text) == ("completed", "message", "One moment.")
    assert (function.type, function.name, json.loads(function.arguments)) == ("function_call", "weather", ULM)
    result = {"type": "function_call_output", "call_id": function.call_id, "output": "sunny"}
    again = client.responses.create(
        model="speaker",
        input=[result],
        previous_response_id=done.id,
        tools=[TOOL],
        max_output_tokens=1,  # type: ignore[list-item]
    )
    sent = [
        {"role": "user", "content": "Weather?"},
        *(item.model_dump(exclude_none=True) for item in done.output),
        result,
    ]
    by_hand = client.responses.create(model="speaker", input=sent, tools=[TOOL], max_output_tokens=1)  # type: ignore[arg-type,list-item]
    assert again.usage is not None and by_hand.usage is not None
    assert again.usage.input_tokens == by_hand.usage.input_tokens
    with client.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert kinds[-4:-1] == [
        *("response.function_call_arguments.delta", "response.function_call_arguments.done"),
        "response.output_item.done",
    ]
    assert [item.type for item in final.output] == ["message", "function_call"]


def test_a_call_that_must_come_and_a_schema(hermes: Running) -> None:
    client = hermes.client()
    choice = {"type": "function", "name": "weather"}
    done = client.responses.create(model="speaker", input="A", tools=[TOOL], tool_choice=choice)  # type: ignore[arg-type,list-item]
    (function,) = done.output
    assert function.type == "function_call" and json.loads(function.arguments)["days"] in range(1, 10)
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "x", "strict": True, "schema": schema}
    done = client.responses.create(model="speaker", input="A", text={"format": form})  # type: ignore[typeddict-item]
    assert json.loads(done.output_text)["ok"] in (True, False)
    assert done.text is not None and done.text.format is not None and done.text.format.type == "json_schema"


def test_a_conversation_that_is_too_long(reciter: Running, client: openai.OpenAI) -> None:
    turns = [
        each
        for i in range(12)
        for each in ({"role": "user", "content": f"{i:02}" + "x" * 40}, {"role": "assistant", "content": "y" * 20})
    ]
    asked = {"model": "reciter", "input": [*turns, {"role": "user", "content": "last"}], "max_output_tokens": 2}
    answer = reciter.post(PATH, asked)
    assert refusal(answer) == (400, "D001")
    answer = reciter.post(PATH, asked | {"truncation": "auto", "instructions": "s"})
    used = answer.json()["usage"]["input_tokens"]
    one = len("user\n00\n" + "x" * 40 + "assistant\n\n" + "y" * 20) + 4
    assert LENGTH - 2 - one <= used <= LENGTH - 2  # as few turns as possible are left out


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"input": 7}, "C002", "input"),
        ({"input": [7]}, "C002", "input.0"),
        ({"input": [{"role": "king", "content": "a"}]}, "C003", "input.0.role"),
        ({"input": [{"role": "user", "content": 7}]}, "C002", "input.0.content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "unsupported", "input.0.content.0"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "unsupported", "input.0"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "b"}]}, "C004", "input.0.arguments"),
        ({"input": []}, "C003", "input"),
        ({"input": "a" * LENGTH}, "D001", None),
        ({"max_output_tokens": LENGTH}, "D001", "max_output_tokens"),
        ({"temperature": 3}, "C003", "temperature"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "C004", "text.format.schema"),
        ({"text": {"verbosity": "high"}}, "C003", "text.verbosity"),
        ({"tool_choice": "required"}, "C004", "tool_choice"),
        ({"previous_response_id": "resp_x"}, "previous_response_not_found", "previous_response_id"),
        ({"background": True}, "unsupported", "background"),
        ({"reasoning": {"effort": "high"}}, "unsupported", "reasoning"),
        ({"include": ["x"]}, "unsupported", "include"),
        ({"metadata": {"a": 1}}, "C002", "metadata.a"),
        ({"messages": []}, "C014", "messages"),
        ({"truncation": "some"}, "C003", "truncation"),
    ],
)
def test_what_is_refused(reciter: Running, more: dict[str, Any], code: str, param: str | None) -> None:
    answer = reciter.post(PATH, {"model": "reciter", "input": "a", "max_output_tokens": 2} | more)
    assert refusal(answer) == (400, code), answer.text
    assert answer.json()["error"]["param"] == param
    assert until(reciter.idle)


def test_only_for_chat_models(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reciter.served.requests, "template", None)
    answer = reciter.post(PATH, {"model": "reciter", "input": "a"})
    assert refusal(answer) == (400, "D008")


def test_an_error_in_a_stream(reciter: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("/home/secret")

    monkeypatch.setattr("headway.serve.responses.GenerationResponse.take", fail)
    answer = reciter.post(PATH, {"model": "reciter", "input": "a", "max_output_tokens": 2, "stream": True})
    last = json.loads(answer.text.strip().split("\n")[-1].removeprefix("data: "))
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert "secret" not in answer.text

"""Conversations from files to ids: bad rows named, long ones made to fit, nothing lost unsaid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.recipe import DataConfig
from headway.data.chat_template.template import (
    END_OF_TURN,
    TOKEN_TEMPLATE,
    TURN_TOKENS,
    ChatTemplate,
    Message,
    encode_chats,
)
from headway.data.datasets.chat import (
    Conversation,
    EncodedChats,
    encode_conversations,
    message_texts,
    read_conversations,
    read_messages,
    train_valid_conversations,
)
from headway.data.files.columns import PROMPT, RESPONSE, TOGETHER
from headway.data.files.rows import BadRows
from headway.data.synthetic.texts.chat import is_held_out
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError, HeadwayError

TOKENIZER = Tokenizer(
    train_tokenizer("bytes", [], special=TURN_TOKENS).backend,
    {"eos_token": END_OF_TURN, "chat_template": TOKEN_TEMPLATE},
)
TEMPLATE = ChatTemplate(TOKEN_TEMPLATE)
FUSSY = ChatTemplate("{% if messages | length < 4 %}{{ raise_exception('too few') }}{% endif %}" + TOKEN_TEMPLATE)


def talk(*texts: str, system: str = "") -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return [*([{"role": "system", "content": system}] if system else []), *said]


def encode(*talks: list[dict[str, Any]], length: int | None = None, template: ChatTemplate = TEMPLATE) -> EncodedChats:
    found = [Conversation(messages, "here.jsonl", i + 1) for i, messages in enumerate(talks)]
    return encode_conversations(found, TOKENIZER, template, BadRows("skip"), length)


def texts(chats: EncodedChats) -> list[str]:
    pairs = zip(chats.starts[:-1], chats.starts[1:], strict=True)
    return [TOKENIZER.decode(chats.ids[a:b].tolist(), skip_special=False) for a, b in pairs]


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_of_every_kind_are_read_up_to_their_last_answer(tmp_path: Path) -> None:
    spec = write(
        tmp_path / "a.jsonl",
        {"messages": talk("a", "b", "c")},
        {"conversations": [{"from": "human", "value": "d"}, {"from": "gpt", "value": "e"}]},
        {"instruction": "f", "input": "g", "output": "h"},
        {"question": "i", "answer": "j"},
    )
    found = read_conversations(spec, BadRows())
    assert [one.messages for one in found] == [talk("a", "b"), talk("d", "e"), talk("f\n\ng", "h"), talk("i", "j")]
    assert [(Path(one.file).name, one.line) for one in found] == [("a.jsonl", n) for n in (1, 2, 3, 4)]
    assert list(message_texts(found)) == ["a", "b", "d", "e", "f\n\ng", "h", "i", "j"]


@pytest.mark.parametrize(
    ("row", "code", "why"),
    [
        ({"messages": talk("a")}, "D007", "no answer"),
        ({"question": "a", "answer": " \n"}, "D007", "message 2: the answer is empty"),
        ({"messages": talk("a", "", "c", "d")}, "D007", "message 2: the answer is empty"),
        ({"text": "a"}, "D004", "text.*known: messages"),
    ],
)
def test_a_row_without_an_answer_is_named(tmp_path: Path, row: dict[str, Any], code: str, why: str) -> None:
    spec = write(tmp_path / "a.jsonl", {"question": "q", "answer": "a"}, row)
    with pytest.raises(DataError, match=rf"a\.jsonl line 2: .*{why}") as caught:
        read_conversations(spec, BadRows())
    assert caught.value.code == code
    bad = BadRows("skip")
    assert len(read_conversations(spec, bad)) == bad.count == 1
    with pytest.raises(DataError, match=r"no conversations \(1 bad row, the first: .*a\.jsonl:1"):
        read_conversations(write(tmp_path / "a.jsonl", row), BadRows("skip"))


def test_an_answer_may_be_a_call_of_a_tool(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    spec = write(tmp_path / "a.jsonl", {"messages": [{"role": "user", "content": "a"}, call]})
    assert read_conversations(spec, BadRows())[0].messages[1] == call


def test_a_conversation_that_the_template_refuses_is_a_bad_row() -> None:
    odd = [{"role": "narrator", "content": "a"}, {"role": "assistant", "content": "b"}]
    found = [Conversation(talk("a", "b"), "x.jsonl", 1), Conversation(odd, "x.jsonl", 2)]
    with pytest.raises(DataError, match=r"x\.jsonl line 2: .*no role narrator") as caught:
        encode_conversations(found, TOKENIZER, TEMPLATE, BadRows())
    assert caught.value.code == "D008"
    bad = BadRows("skip")
    chats = encode_conversations(found, TOKENIZER, TEMPLATE, bad)
    assert len(chats) == 1 and bad.count == 1 and chats.messages == [talk("a", "b")]


def test_ids_and_answers_are_those_of_each_conversation_alone() -> None:
    talks = [talk("hello", "you"), talk("a", "b", "c", "d", system="s"), talk("é", "漢")]
    chats = encode(*talks)
    for i, messages in enumerate(talks):
        here = slice(chats.starts[i], chats.starts[i + 1])
        assert (chats.ids[here].tolist(), chats.assistant_mask[here].tolist()) == encode_chats(
            TOKENIZER, TEMPLATE, [messages]
        )[0]
    assert (chats.shortened, chats.cut, chats.left_out) == (0, 0, 0)


def test_first_turns_go_first_and_the_system_stays() -> None:
    chats = encode(talk("a", "b", "c", "d", "e", "f", system="s"), talk("g", "h"), length=15)
    assert texts(chats) == [
        "<|system|>s<|end|><|user|>c<|end|><|assistant|>d<|end|><|user|>e<|end|><|assistant|>f<|end|>",
        "<|user|>g<|end|><|assistant|>h<|end|>",
    ]
    assert chats.messages[0] == talk("c", "d", "e", "f", system="s")
    assert (chats.shortened, chats.cut, chats.left_out) == (1, 0, 0)
    exact = encode(talk("a", "b", "c", "d", system="s"), length=15)
    assert exact.shortened == 0 and len(exact.ids) == 15


def test_the_end_of_a_long_turn_is_cut_off_and_no_answer_is_left_out() -> None:
    chats = encode(talk("a", "b", "c", "d" * 9), talk("q" * 9, "r"), length=8)
    assert texts(chats) == ["<|user|>c<|end|><|assistant|>dddd"]
    assert (chats.shortened, chats.cut, chats.left_out) == (1, 1, 1)
    assert len(chats) == 1


def test_where_the_template_wants_the_first_turn_the_end_is_cut_off_instead() -> None:
    chats = encode(talk("a", "b", "c", "d"), length=10, template=FUSSY)
    assert texts(chats) == ["<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>"]
    assert (chats.shortened, chats.cut, chats.left_out) == (0, 1, 0)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.lists(st.text("abc", max_size=6), min_size=2, max_size=8), min_size=1, max_size=4), st.integers(4, 40)
)
def test_whatever_fits_is_kept_and_the_rest_is_counted(said: list[list[str]], length: int) -> None:
    talks = [talk(*one[: len(one) // 2 * 2]) for one in said]
    whole, chats = encode(*talks), encode(*talks, length=length)
    assert np.diff(chats.starts).max(initial=0) <= length
    assert len(chats) + chats.left_out == len(talks)
    fits = [m for m, size in zip(talks, np.diff(whole.starts), strict=True) if size <= length]
    assert all(m in chats.messages for m in fits)
    for a, b in zip(chats.starts[:-1], chats.starts[1:], strict=True):
        assert chats.assistant_mask[a:b].any()


def test_the_prompt_of_a_conversation_ends_before_its_first_answer() -> None:
    chats = encode(talk("x", "y"), talk("a", "b", "c", "d", system="s"))
    question, ids = chats.prompt(1)
    assert question == "a"
    assert TOKENIZER.decode(ids, skip_special=False) == "<|system|>s<|end|><|user|>a<|end|><|assistant|>"


def test_the_last_tenth_is_held_out(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "answer": "a"} for i in range(20)]
    train, valid = train_valid_conversations(write(tmp_path / "a.jsonl", *rows), "", BadRows(), 0)
    assert [len(train), len(valid)] == [18, 2]
    assert valid[-1].messages[0]["content"] == "q19" and valid[0].messages[0]["content"] == "q18"
    train, valid = train_valid_conversations(
        str(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", rows[3]), BadRows(), 0
    )
    assert [len(train), len(valid)] == [20, 1]
    train, valid = train_valid_conversations(write(tmp_path / "c.jsonl", *rows[:2]), "", BadRows(), 0)
    assert [len(train), len(valid)] == [1, 1]
    with pytest.raises(DataError, match="none can be held out"):
        train_valid_conversations(str(tmp_path / "b.jsonl"), "", BadRows(), 0)


def test_without_files_the_grammar_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.data.datasets.chat.SYNTHETIC", 30)
    train, valid = train_valid_conversations("", "", BadRows(), 1)
    assert len(train) == 30 and len(valid) == 400
    words = [one.messages[0]["content"].removeprefix("Say ").removesuffix(" twice.") for one in valid]
    told = [word for word in words if " " not in word]
    assert told and all(map(is_held_out, told))


# --- conversations from rows ---------------------------------------------------------------------

PAIR = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": PAIR, "id": 3}, PAIR),
        ({"conversations": PAIR}, PAIR),
        ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, PAIR),
        (
            {"conversations": [{"from": "system", "value": "s"}, {"from": "user", "value": "q"}]},
            [{"role": "system", "content": "s"}, PAIR[0]],
        ),
        ({"messages": [{"from": "tool", "value": "x", "id": 7}]}, [{"role": "tool", "content": "x", "id": 7}]),
        ({"prompt": "q", "response": "a"}, PAIR),
        ({"prompt": "q", "completion": "a"}, PAIR),
        ({"prompt": "q", "response": "a", "input": "left out"}, PAIR),
        ({"question": "q", "answer": "a", "source": "x"}, PAIR),
        ({"instruction": "q", "output": "a"}, PAIR),
        ({"instruction": "q", "input": "", "output": "a"}, PAIR),
        ({"instruction": "q", "input": None, "output": "a"}, PAIR),
        ({"instruction": "q", "input": "more", "output": "a"}, [{"role": "user", "content": "q\n\nmore"}, PAIR[1]]),
        ({"prompt": "q", "response": "a", "system": "s"}, [{"role": "system", "content": "s"}, *PAIR]),
        ({"prompt": "q", "response": "a", "system": ""}, PAIR),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [1]}]},
            [{"role": "assistant", "content": None, "tool_calls": [1]}],
        ),
        (
            {"messages": [{"role": "judge", "content": [{"type": "text", "text": "x"}]}]},
            [{"role": "judge", "content": [{"type": "text", "text": "x"}]}],
        ),
    ],
)
def test_rows_that_hold_a_conversation(row: dict[str, Any], messages: list[Message]) -> None:
    before = json.dumps(row)
    assert read_messages(row) == messages
    assert json.dumps(row) == before


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        ({}, "D004", "no fields"),
        ({"text": "x", "label\x1b": 1}, "D004", '"text", .*label'),
        ({"prompt": "q"}, "D004", "prompt"),
        ({"messages": "x"}, "D007", "messages is x"),
        ({"messages": []}, "D007", "not a list"),
        ({"messages": ["x"]}, "D007", "messages, message 1 is x"),
        ({"messages": [PAIR[0], {"content": "x"}]}, "D007", "message 2: role is None"),
        ({"messages": [{"role": "user"}]}, "D007", "content is None"),
        ({"messages": [{"role": "user", "content": 3}]}, "D007", "content is 3"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "D007", "from is alien"),
        ({"conversations": [{"from": "human", "value": 1}]}, "D007", "value is 1"),
        ({"prompt": 1, "response": "a"}, "D007", "prompt is 1"),
        ({"instruction": "q", "input": 5, "output": "a"}, "D007", "input is 5"),
        ({"question": "q", "answer": None}, "D007", "answer is None"),
        ({"prompt": "q", "response": "a", "system": 5}, "D007", "system is 5"),
    ],
)
def test_rows_that_do_not(row: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(HeadwayError, match=words) as caught:
        read_messages(row)
    assert caught.value.code == code
    assert "\x1b" not in str(caught.value)


def test_a_row_with_no_conversation_names_what_is_known() -> None:
    with pytest.raises(DataError) as caught:
        read_messages({"text": "x"})
    for name in ("messages", "conversations", "prompt + response", "question + answer", "instruction + output"):
        assert name in caught.value.hint


def test_every_pair_of_fields_makes_a_conversation() -> None:
    for question, answer in TOGETHER[PROMPT, RESPONSE]:
        assert read_messages({question: "q", answer: "a"}) == PAIR


def test_columns_of_conversations_can_be_named(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    one = write(tmp_path / "a.jsonl", {"talk": turns, "messages": "none"})
    two = write(tmp_path / "b.jsonl", {"asked": "Hi", "said": "Hello", "prompt": "x", "response": "y"})
    for spec, data in ((one, DataConfig(text="talk")), (two, DataConfig(text="asked", pair="said"))):
        assert read_conversations(spec, BadRows(), data)[0].messages == turns
        assert train_valid_conversations(spec, spec, BadRows(), 0, data)[1][0].messages == turns
    with pytest.raises(DataError, match=r"D004.*'tlak'"):
        read_conversations(one, BadRows(), DataConfig(text="tlak"))
    with pytest.raises(ConfigError, match=r"C004.*data\.pair"):
        read_conversations(two, BadRows(), DataConfig(pair="said"))

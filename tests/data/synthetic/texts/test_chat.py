"""The grammar of questions: right answers, always the same, and none of the held-out things among the others."""

from __future__ import annotations

import re

import pytest

from headway.data.synthetic.texts.chat import TURNS, is_held_out, make_conversations


def check(question: str, answer: str, before: list[str]) -> None:
    """The answer worked out anew from the question alone."""
    numbers = [int(n) for n in re.findall(r"\d+", question)]
    if "plus" in question or "+" in question:
        assert answer == str(sum(numbers))
    elif numbers:
        assert answer == str(numbers[0] + 1)
    elif "backwards" in question or "reverse" in question:
        assert answer == "".join(reversed(re.findall(r"(?:Spell|is|reverse) ([a-z]+)", question)[0]))
    elif "How" in question:
        word = re.findall(r"(?:in|is) ([a-z]+)\?", question)[0]
        assert answer == f"{len(word)} letters"
    elif "letter" in question:
        word = re.findall(r"(?:of|in) ([a-z]+)\?", question)[0]
        assert answer == (word[0] if "first" in question else word[-1])
    elif "twice" in question or "repeat" in question:
        word = re.findall(r"(?:Say|repeat) ([a-z]+)", question)[0]
        assert answer == f"{word} {word}"
    elif question in ("What is my name?", "Who am I?"):
        told = [text for text in before if re.search(r"(?:I am|name is) [A-Z]", text)]
        assert answer == f"You are {re.findall(r'[A-Z][a-z]+', told[-1])[-1]}."
    else:
        assert answer == f"Hello, {re.findall(r'[A-Z][a-z]+', question)[-1]}!"


@pytest.mark.parametrize("held_out", [False, True])
def test_answers_are_right(held_out: bool) -> None:
    seen = 0
    for messages in make_conversations(300, 3, held_out=held_out):
        assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2)
        assert 1 <= len(messages) // 2 <= TURNS
        for place in range(0, len(messages), 2):
            check(messages[place]["content"], messages[place + 1]["content"], [m["content"] for m in messages[:place]])
            seen += 1
    assert seen > 500


def test_the_same_seed_gives_the_same_conversations() -> None:
    first = list(make_conversations(20, 3))
    assert first == list(make_conversations(20, 3)) != list(make_conversations(20, 4))
    assert first[0] == next(make_conversations(1, 3)), "more of them do not change the first"


def things(held_out: bool) -> set[str]:
    """Words, names and numbers that questions are about."""
    found = set()
    for messages in make_conversations(600, 5, held_out=held_out):
        for message in messages[::2]:
            text = message["content"]
            numbers = re.findall(r"\d+", text)
            found |= {" ".join(numbers)} if numbers else set()
            pattern = r"(?:Spell|is|reverse|in|of|Say|repeat|am) ([b-z][aeiou][a-z]{1,2})\b"
            names = re.findall(pattern, text, re.IGNORECASE)
            found |= {name.lower() for name in names}
    return found - {"last"}  # "Which letter is last …"


def test_what_is_held_out_is_in_no_other_question() -> None:
    ours, theirs = things(False), things(True)
    assert len(ours) > 400 and len(theirs) > 100
    assert not ours & theirs
    assert all(map(is_held_out, theirs)) and not any(map(is_held_out, ours))

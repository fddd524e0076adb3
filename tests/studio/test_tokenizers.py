"""The page of tokens: texts through tokenizers, merges one by one, training on a text, vocabularies, languages."""

from __future__ import annotations

from typing import Any

import pytest

from headway.data.tokenizers.train import train_tokenizer
from tests.studio.conftest import RunningStudio

XSS = "<img src=x onerror=alert(1)>"
TEXT = f"naïve cafés {XSS} 東京"
WORDS = "lower slower slowest lowest newer newest " * 5


def ask(studio: RunningStudio, what: str, **body: Any) -> Any:
    answer = studio.client.post(f"/api/tokens/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def trained(studio: RunningStudio, kind: str, size: int = 0, **more: Any) -> str:
    return str(ask(studio, "train", kind=kind, text=WORDS, size=size, **more)["name"])


@pytest.mark.parametrize(
    ("kind", "size"), [("bytes", 0), ("chars", 0), ("bpe", 300), ("unigram", 300), ("wordpiece", 60)]
)
def test_pieces_are_those_of_the_tokenizer(kind: str, size: int, studio: RunningStudio) -> None:
    found = ask(studio, "split", tokenizer=trained(studio, kind, size), text=TEXT)
    own = train_tokenizer(kind, [WORDS], size).encode(TEXT)
    tokens = found["tokens"]
    assert [token["id"] for token in tokens] == own.ids
    assert found["of_text"] == sum(word is not None for word in own.words) and found["bytes"] == len(TEXT.encode())
    if kind in ("bytes", "bpe", "unigram"):
        assert bytes.fromhex("".join(token["bytes"] for token in tokens)).decode() == TEXT
        assert "⟨e6⟩" in {token["text"] for token in tokens}, "a byte that is no character"
    assert ask(studio, "count", tokenizer=found["name"], texts=[TEXT, ""])["counts"][0]["tokens"] == found["of_text"]


def test_merges_are_those_of_the_training_text(studio: RunningStudio) -> None:
    found = ask(studio, "merges", tokenizer=trained(studio, "bpe", 262), text="not this")
    assert found["merges"][:2] == [["w", "e", 30, len(WORDS) - 30], ["l", "o", 20, len(WORDS) - 50]]
    assert found["tokens"] == len(WORDS.encode()) and found["read"]["Ġ"] == " "
    others = ask(studio, "merges", tokenizer="bytes", text=TEXT)
    assert "single characters" in others["none"] and others["words"]


def test_a_vocabulary_is_searched_by_text_and_by_id(studio: RunningStudio) -> None:
    name = trained(studio, "bpe", 270)
    found = ask(studio, "vocabulary", tokenizer=name, query="lOwE")
    assert found["of"] == 270 and found["rows"][0]["text"].strip() == "lowe"
    assert ask(studio, "vocabulary", tokenizer=name, query="65")["rows"][0]["id"] == 65


@pytest.mark.parametrize(
    ("what", "body", "code"),
    [
        ("split", {"tokenizer": "gpt2", "text": "a"}, "F005"),
        ("split", {"tokenizer": "no-such", "text": "a"}, "F001"),
        ("split", {"tokenizer": "org/never-downloaded", "text": "a"}, "F006"),
        ("split", {"tokenizer": "trained:bpe-300-beef", "text": "a"}, "F005"),
        ("split", {"tokenizer": "bytes", "text": "a" * 60_000}, "C002"),
        ("train", {"kind": "bpe", "text": WORDS, "size": 3}, "C003"),
        ("train", {"kind": "bpe", "text": "", "size": 300}, "D002"),
        ("train", {"kind": "magic", "text": WORDS}, "C002"),
    ],
)
def test_what_cannot_be_done_is_refused(what: str, body: dict[str, Any], code: str, studio: RunningStudio) -> None:
    answer = studio.client.post(f"/api/tokens/{what}", json=body)
    assert 400 <= answer.status_code < 500 and answer.json()["error"]["code"] == code


def test_a_person_trains_a_tokenizer_and_walks_through_its_merges(studio: RunningStudio, page: Any) -> None:
    page.goto(f"{studio.url}/tokens?token={'t' * 43}")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.locator(".figures").first.wait_for()
    page.get_by_role("button", name="Train one here").click()
    page.get_by_label("Text to train on").fill(WORDS)
    page.get_by_label("Vocabulary size").fill("262")
    page.get_by_role("button", name="Train", exact=True).click()
    page.get_by_text("Merge 0 of 6").wait_for()
    next_, back = page.get_by_role("button", name="Next →"), page.get_by_role("button", name="← Back")
    before = page.locator(".merge-words .piece").count()
    for _ in range(6):
        next_.click()
    assert next_.is_disabled() and page.locator(".merge-words .piece").count() < before
    assert page.locator(".merge-list li").count() == 6
    for _ in range(6):
        back.click()
    assert page.locator(".merge-words .piece").count() == before and back.is_disabled()

    page.get_by_role("button", name="Compare").click()
    first = page.locator(".pieces").first
    first.locator(".piece").first.focus()
    page.keyboard.press("ArrowRight")
    assert "bytes 61" in page.locator(".piece-told").first.inner_text()
    assert "<" in first.inner_text() and page.locator(".pieces img").count() == 0
    page.get_by_role("button", name="Vocabulary").click()
    page.get_by_label("Search the vocabulary").fill("low")
    page.get_by_text("of 262 entries").wait_for()
    page.get_by_role("button", name="Languages").click()
    page.get_by_text("Swahili").first.wait_for()

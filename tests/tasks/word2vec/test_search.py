"""Searching word vectors, n-grams, and analogies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from headway.config.networks.words import WordsConfig, WordVectorsConfig
from headway.data.files.rows import BadRows
from headway.errors import DataError
from headway.joint.words import WordVectors
from headway.tasks.word2vec.analogies import answer, evaluation, is_questions, read_questions
from headway.tasks.word2vec.map import word_map
from headway.tasks.word2vec.ngrams import all_rows, hashed, ngram_rows, ngrams
from headway.tasks.word2vec.search import parse_query, word_rows, word_vectors

WORDS = ["france", "paris", "italy", "rome", "spain", "madrid", "dog"]


def capitals() -> WordVectors:
    """Each country is a direction, and a capital lies beyond it in one direction that all share."""
    model = WordVectors(WordVectorsConfig(source=WordsConfig(vocab=len(WORDS)), width=5, lower=True))
    rows = torch.zeros(len(WORDS), 5)
    for pair in range(3):
        rows[2 * pair : 2 * pair + 2, pair] = 1
        rows[2 * pair + 1, 3] = 1
    rows[6, 4] = 1
    model.inputs.data.copy_(rows)
    return model


def test_queries_add_and_subtract_words() -> None:
    assert parse_query("paris").terms == (("paris", 1),)
    assert parse_query("paris - france + italy").terms == (("paris", 1), ("france", -1), ("italy", 1))
    assert parse_query("new york").terms == (("new", 1), ("york", 1))
    assert parse_query("france : paris :: italy : ?").terms == (("paris", 1), ("france", -1), ("italy", 1))
    assert parse_query("well-known").terms == (("well-known", 1),)


@pytest.mark.parametrize("text", ["- france", "paris -", "paris - + italy", "+"])
def test_a_query_that_is_no_sum_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="D001"):
        parse_query(text)


def test_the_nearest_words_leave_those_of_the_query_out() -> None:
    search = word_vectors(capitals(), WORDS)
    found = search.nearest(search.query("Paris - France + Italy"), 2)
    assert found[0].word == "rome" and found[0].cosine == pytest.approx(0.9586, abs=1e-3)
    assert {"paris", "france", "italy"}.isdisjoint(each.word for each in found)
    assert [each.word for each in search.nearest(search.query("dog"), 99)] != ["dog"]
    assert len(search.nearest(search.query("dog"), 99)) == len(WORDS) - 1


def test_an_unknown_word_is_an_error_with_near_spellings() -> None:
    with pytest.raises(DataError, match="'pariss' has no vector — did you mean paris"):
        word_vectors(capitals(), WORDS).query("pariss")


def test_ngrams_stand_between_marks() -> None:
    assert ngrams("cat", 3, 4) == ["<ca", "<cat", "cat", "cat>", "at>"]
    assert ngrams("a", 1, 2) == ["<a", "a", "a>"]
    assert hashed("") == 2166136261 and hashed("a") == 0xE40C292C and hashed("foobar") == 0xBF9CF968
    assert hashed("é") != hashed("e") and 0 <= hashed("é") < 2**32


def test_a_word_that_was_never_seen_is_the_mean_of_its_ngrams() -> None:
    config = WordVectorsConfig(source=WordsConfig(vocab=2), width=4, ngram_rows=30, lower=True)
    model, words = WordVectors(config), ["walking", "walked"]
    rows = ngram_rows("walks", config)
    assert min(rows) >= 2 and max(rows) < 32
    search = word_vectors(model, words)
    expected = F.normalize(model.inputs.detach()[rows].mean(0), dim=0)
    assert torch.allclose(search.vector("Walks"), expected, atol=1e-6)
    starts, every = all_rows(words, config)
    own = [0, *every[: starts[1]].tolist()]
    assert torch.allclose(word_rows(model, words)[0], model.inputs.detach()[own].mean(0), atol=1e-6)
    with pytest.raises(DataError, match="has no vector"):
        word_vectors(WordVectors(replace(config, ngram_rows=0)), words).vector("walks")


FILE = """: capitals
France Paris Italy Rome
Italy Rome Spain Madrid
: others
France Paris Dog Madrid
France Paris Peru Lima
"""


def test_analogies_are_answered_section_by_section(tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_text(FILE)
    assert is_questions(str(path))
    questions = read_questions(str(path), BadRows())
    found = answer(word_vectors(capitals(), WORDS).vectors, WORDS, questions)
    assert found.asked.tolist() == [0, 1, 2] and found.right.tolist() == [True, True, False]
    result = evaluation(found)
    rows = {row["kind"]: row for row in result.details["by_section"]}
    assert rows["capitals"]["accuracy"] == 1 and rows["others"]["accuracy"] == 0 and rows["others"]["known"] == 0.5
    assert rows["all"]["examples"] == 4 and result.metrics["accuracy"][0] == pytest.approx(2 / 3)
    assert result.details["worst"][0]["label"] == "Madrid"


def test_a_file_of_analogies_with_mistakes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_text(": capitals\nFrance Paris Italy\n")
    with pytest.raises(DataError, match=r"line 2.*four words"):
        read_questions(str(path), BadRows())
    path.write_text("The first line of a text.\n")
    assert not is_questions(str(path))
    path.write_text(": section\nOslo Norway Lima Peru\n")
    with pytest.raises(DataError, match="no 'Oslo'"):
        answer(word_vectors(capitals(), WORDS).vectors, WORDS, read_questions(str(path), BadRows()))


def test_a_map_has_every_word_and_no_markup_of_words() -> None:
    import base64

    words = [*WORDS[:-1], "<b>&"]
    svg = base64.b64decode(word_map(word_vectors(capitals(), words))["png"].partition(",")[2]).decode()
    assert svg.count("<text") == len(words) - len(words) // 4 and "&lt;b&gt;&amp;" in svg and "<b>" not in svg

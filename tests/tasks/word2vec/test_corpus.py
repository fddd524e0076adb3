"""Texts as numbers of words, and texts that no word vectors can be learned from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from headway.baselines.build import make_model
from headway.data.datasets.text import Corpus
from headway.errors import DataError
from headway.hub.vectors.model import words_tokenizer
from headway.tasks.recipe import load_recipe
from headway.tasks.training import TaskContext
from headway.tasks.word2vec.corpus import END, Words, count_words, frequent, make_spans, words_in
from headway.tasks.word2vec.task import Settings
from headway.tasks.word2vec.training import WordVectorsTraining


def corpus(*texts: str) -> Corpus:
    return Corpus(lambda: iter(texts), "", len(texts) > 1)


def test_words_are_letters_or_all_between_spaces() -> None:
    assert Words("letters", True).of("Paris, new_york: Don't!") == ["paris", "new_york", "don", "t"]
    assert Words("spaces", False).of("Paris, Don't!") == ["Paris,", "Don't!"]


def test_the_vocabulary_is_by_frequency_then_by_spelling() -> None:
    counts = Counter(["b", "b", "b", "a", "a", "c", "c", "d"])
    found = frequent(counts, Settings(min_count=2), 0)
    assert found.words == ["b", "a", "c"] and found.counts.tolist() == [3, 2, 2]
    assert frequent(counts, Settings(min_count=2), 2).words == ["b", "a"]


def test_spans_leave_rare_words_out_and_end_documents() -> None:
    texts = corpus("a b x a", "b b")
    assert count_words(texts, Words("letters", False)) == {"a": 2, "b": 3, "x": 1}
    spans = make_spans(texts, Words("letters", False), {"b": 0, "a": 1}, 4)
    assert spans.tolist() == [[1, 0, 1, END], [0, 0, END, END]]
    assert make_spans(corpus("a b"), Words("letters", False), {"b": 0, "a": 1}, 2).tolist() == [[1, 0]]


def test_a_long_text_is_read_in_parts_between_words() -> None:
    text = "alpha beta " * 150_000
    assert count_words(corpus(text), Words("letters", False)) == {"alpha": 150_000, "beta": 150_000}


def test_the_words_of_a_tokenizer_are_in_the_order_of_the_rows() -> None:
    tokenizer = words_tokenizer(["the", "dog", "ran"], "letters", True)
    assert words_in(tokenizer, 3) == ["the", "dog", "ran"]
    assert tokenizer.encode("The dog, sat").ids == [0, 1, 3]


@pytest.mark.parametrize(
    ("text", "settings", "says"),
    [
        ("one two three four", (), "no word occurs word2vec.min_count = 5 times: the most frequent one"),
        ("!!! ???", (), "the text has no words"),
        ("dog " * 500, (), "the vocabulary has one word, 'dog'"),
        ("a b", ("word2vec.min_count=1", "data.valid={path}"), "no more than word2vec.window = 5"),
    ],
)
def test_a_text_without_vectors_is_refused_before_training(
    text: str, settings: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(text)
    words = [f"data.train={path}", *(word.format(path=path) for word in settings)]
    recipe = load_recipe("word2vec", words)[1]
    with pytest.raises(DataError, match=says):
        WordVectorsTraining.prepare(TaskContext(recipe, tmp_path))


def test_all_words_of_a_batch_come_from_its_spans(tmp_path: Path) -> None:
    recipe = load_recipe("word2vec", ["data.length=50"])[1]
    training = WordVectorsTraining.prepare(TaskContext(recipe, tmp_path))
    batches = [training.batch(training.plan(8).samples(step)) for step in range(len(training.spans) // 8)]
    rows = np.concatenate([np.asarray(batch.tensors[0]) for batch in batches])
    assert len({row.tobytes() for row in rows}) == len(
        {row.tobytes() for row in training.spans[: len(training.spans)]}
    ) - (len(training.spans) - len(rows))
    assert batches[1].tensors[1] is not None and batches[1].tensors[1].tolist() == [50 * n for n in range(8, 16)]


def test_a_text_of_a_few_frequent_words_can_be_evaluated(tmp_path: Path) -> None:
    """Sub-sampling leaves spans without a single pair."""
    path = tmp_path / "text.txt"
    path.write_text("the dog saw a cat and the cat saw a dog .\n" * 100)
    recipe = load_recipe("word2vec", [f"data.train={path}", "data.length=5", "word2vec.subsample=1e-5"])[1]
    training = WordVectorsTraining.prepare(TaskContext(recipe, tmp_path))
    model = make_model(training.config(None))
    found = training.evaluate_in_full(model, training.valid).metrics["loss"]
    assert all(0 <= number <= training.chance["valid"] for number in found)

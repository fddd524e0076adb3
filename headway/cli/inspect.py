"""`headway inspect`: look inside a model, with an input or without."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Json, Model, Quiet, app, console, examples, load_bundle
from headway.errors import UsageError, nearest
from headway.progress import progress_printer


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What is asked about one input, as it was typed."""

    given: str
    pair: str
    target: str | None
    kind: str
    layer: int | None
    head: int | None
    ablate: list[str]
    scale: list[str]
    steer: str
    away: str
    strength: float
    why: bool
    patch: str
    word: str
    beside: str

    @property
    def input(self) -> str | tuple[str, str]:
        return (self.given, self.pair) if self.pair else self.given

    def check(self) -> None:
        """Refuse what does not go together, before the model is loaded."""
        alone = [name for name in ("why", "patch", "word") if getattr(self, name)]
        if len(alone) > 1:
            raise UsageError("U001", f"--{alone[0]} and --{alone[1]} are two questions", "ask one after the other")
        if alone and (self.ablate or self.scale or self.steer):
            hint = "leave out --ablate, --scale and --steer"
            raise UsageError("U001", f"--{alone[0]} looks at the model as it is", hint)
        if bool(self.word) != bool(self.beside):
            raise UsageError("U001", "--word needs --beside", '--word bank --beside "the bank is open"')
        if bool(self.steer) != bool(self.away) or (self.steer and self.layer is None):
            raise UsageError(
                "U001", "--steer needs --away and --layer", '--steer "good|fine" --away "bad|poor" --layer 2'
            )


PROJECTIONS = ("pca", "umap")


@app.command(
    epilog=examples(
        'headway inspect last "To be or not"',
        'headway inspect last "To be or not" --layer 2 --head 1',
        'headway inspect last "To be or not" --ablate 2.1 --scale 0.ffn=0.5',
        'headway inspect last "To be or not" --html inside.html',
        'headway inspect ./classifier "a dull film" --why',
        'headway inspect org/name "Anna is here" --patch "Omar is here"',
        'headway inspect org/name "a river bank" --word bank --beside "the bank is open"',
        'headway inspect org/name "I think" --steer "good|fine" --away "bad|poor" --layer 4',
        "headway inspect ./model --near Paris",
    )
)
def inspect(
    model: Model,
    given: Annotated[
        str | None,
        typer.Argument(
            help="a text, or the path of an image, a sound, a series, a graph; none: look at the weights",
            metavar="INPUT",
        ),
    ] = None,
    pair: Annotated[str, typer.Option(help="the second text of a pair", metavar="TEXT")] = "",
    target: Annotated[
        str | None, typer.Option(help="what the decoder of an encoder–decoder reads", metavar="TEXT")
    ] = None,
    kind: Annotated[str, typer.Option(help="the attention to draw: encoder, decoder, cross …")] = "",
    layer: Annotated[int | None, typer.Option(help="the layer to draw, from 0")] = None,
    head: Annotated[int | None, typer.Option(help="the head to draw, from 0")] = None,
    ablate: Annotated[
        list[str] | None,
        typer.Option(help="take a part away: 3 (a layer), 3.5 (a head), 3.ffn, 3.ffn.17", metavar="PART"),
    ] = None,
    scale: Annotated[list[str] | None, typer.Option(help="multiply what a part adds", metavar="PART=FACTOR")] = None,
    steer: Annotated[str, typer.Option(help="move towards these texts, with | between them", metavar="TEXTS")] = "",
    away: Annotated[str, typer.Option(help="and away from these", metavar="TEXTS")] = "",
    strength: Annotated[float, typer.Option(help="how far to move")] = 1.0,
    why: Annotated[bool, typer.Option("--why", help="what of the input speaks for the answer")] = False,
    patch: Annotated[
        str, typer.Option(help="which activations of this input change the answer to its own", metavar="INPUT")
    ] = "",
    word: Annotated[str, typer.Option(help="how far apart this word is, layer by layer …", metavar="WORD")] = "",
    beside: Annotated[str, typer.Option(help="… in the input and in this text", metavar="TEXT")] = "",
    near: Annotated[str, typer.Option(help="without an input: the tokens nearest to this word", metavar="WORD")] = "",
    map_: Annotated[
        str | None, typer.Option("--map", help="without an input: a map of these words; all: many", metavar="WORDS")
    ] = None,
    by: Annotated[str, typer.Option(help="the projection of --map: pca or umap", metavar="NAME")] = "pca",
    html: Annotated[Path | None, typer.Option(help="write a page that shows everything", metavar="FILE")] = None,
    json_: Json = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Look inside a model: heads, layers, and what moves its answer."""
    say = progress_printer(quiet)
    asked = Questions(
        given=given or "", pair=pair, target=target, kind=kind, layer=layer, head=head, ablate=ablate or [],
        scale=scale or [], steer=steer, away=away, strength=strength, why=why, patch=patch, word=word, beside=beside,
    )  # fmt: skip
    if given is None:
        _check_weights_only(asked, html)
        if by not in PROJECTIONS:
            raise UsageError("U001", f"--by {by}{nearest(by, PROJECTIONS)}", f"one of {', '.join(PROJECTIONS)}")
        bundle = load_bundle(model, device, "auto", quiet)
        found, lines = _weights(bundle, near, map_, by)
    else:
        if near or map_ is not None:
            raise UsageError("U001", "--near and --map look at the weights", "leave out the input")
        asked.check()
        bundle = load_bundle(model, device, "auto", quiet)
        found, lines = _answers(bundle.session, asked, html, json_)
    if json_:
        print(json.dumps({"model": bundle.name, **found}, allow_nan=False))
    else:
        screen = console()
        for line in lines:
            screen.print(line, markup=False)
    name = shlex.quote(model)
    if html is not None:
        say(f"{html} written: open it in a browser")
    else:
        say(
            f"next: headway inspect {name} "
            + (_try(bundle) if given is None else f"{shlex.quote(given)} --html x.html")
        )


def _check_weights_only(asked: Questions, html: Path | None) -> None:
    empty: tuple[Any, ...] = ("", None, [], False, 1.0)
    typed = [name for name, value in vars(asked).items() if value is True or value not in empty]
    typed += ["html"] if html else []
    if typed:
        raise UsageError("U001", f"--{typed[0]} needs an input", 'give a text after the model: "To be or not"')


def _answers(session: Any, asked: Questions, html: Path | None, whole: bool) -> tuple[dict[str, Any], Iterator[str]]:
    """What is asked about an input, as plain values (`whole`: with everything that a pass shows) and as lines."""
    from headway.inspect.show import page, terminal
    from headway.inspect.weights.units import units

    seen = session.run(asked.input, target=asked.target, changes=_changes(session, asked))
    if asked.kind or asked.layer is not None or asked.head is not None:
        seen.attention(asked.kind, asked.layer or 0, asked.head)  # an error if there is none
    found: dict[str, Any] = {}
    if asked.why:
        attribution = session.attribution(asked.input, target=asked.target or "")
        found, lines = {"attribution": attribution.to_dict()}, terminal.attribution_lines(attribution)
    elif asked.patch:
        patching = session.patching(asked.given, asked.patch, kind=asked.kind, target=asked.target or "")
        found, lines = {"patching": patching.to_dict()}, terminal.patching_lines(patching)
    elif asked.word:
        apart = session.word_in_contexts(asked.word, asked.given, asked.beside, kind=asked.kind)
        found, lines = {"word": asked.word, "distances": apart}, terminal.distance_lines(asked.word, apart)
    else:
        plain = session.run(seen.reading) if seen.changes else None
        found = seen.to_dict() if whole else {}
        for kind, values in found.get("kinds", {}).items():
            values["units"] = None if seen.part(kind).cross else [each.to_dict() for each in units(seen, kind)]
        lines = terminal.picture(seen, plain, kind=asked.kind, layer=asked.layer, head=asked.head)
    if html is not None:
        page.write_page(
            html, session.loaded.name, session.overview(), seen, found.get("attribution"), found.get("patching")
        )
    return found, lines


def _changes(session: Any, asked: Questions) -> list[Any]:
    from headway.inspect.changes import Steer, parse_change

    found: list[Any] = [parse_change(words) for words in asked.ablate]
    for words in asked.scale:
        part, _, factor = words.partition("=")
        try:
            found.append(parse_change(part, float(factor)))
        except ValueError:
            raise UsageError("U001", f"--scale {words}: a part, = and a number", "--scale 3.5=0.5") from None
    if asked.steer and asked.layer is not None:
        vector = session.direction(asked.steer.split("|"), asked.away.split("|"), asked.layer, kind=asked.kind)
        found.append(Steer(layer=asked.layer, vector=vector, strength=asked.strength, kind=asked.kind))
    return found


def _weights(bundle: Any, near: str, words: str | None, by: str) -> tuple[dict[str, Any], Iterator[str]]:
    """The parts of a model and its positions; the neighbours of a word; a map of words."""
    from headway.inspect.show import terminal

    session = bundle.session
    if near:
        neighbours = [each.to_dict() for each in session.neighbours(near)]
        return {"near": neighbours}, terminal.neighbour_lines(near, neighbours)
    if words is not None:
        points = session.embedding_map([] if words == "all" else words.split(","), by)
        return points.to_dict(), terminal.map_of_words(points)
    found = {**session.overview(), "positions": session.positions()}
    return found, terminal.overview_lines(bundle.name, found)


def _try(bundle: Any) -> str:
    """Words to try: those that fit the made-up data of the model's run, or what a user of the task would write."""
    from headway.tasks.registry import get_task

    tries = get_task(bundle.task).tries
    made_up = bundle.recipe is not None and not bundle.recipe.data.train
    return tries.made_up if made_up else tries.own

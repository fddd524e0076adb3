"""`headway inspect`: look inside a model, with an input or without."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Json, Model, Quiet, app, console, examples, load_bundle
from headway.errors import UsageError
from headway.progress import progress_printer


@app.command(
    epilog=examples(
        'headway inspect last "To be or not"',
        'headway inspect last "To be or not" --layer 2 --head 1',
        'headway inspect last "To be or not" --ablate 2.1 --scale 0.ffn=0.5',
        'headway inspect last "To be or not" --html inside.html',
        'headway inspect ./classifier "a dull film" --why',
        'headway inspect org/name "Anna is here" --patch "Omar is here"',
        "headway inspect ./model",
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
    why: Annotated[bool, typer.Option("--why", help="what of the input speaks for the answer")] = False,
    patch: Annotated[
        str, typer.Option(help="which activations of this input change the answer to its own", metavar="INPUT")
    ] = "",
    near: Annotated[str, typer.Option(help="without an input: the tokens nearest to this word", metavar="WORD")] = "",
    html: Annotated[Path | None, typer.Option(help="write a page that shows everything", metavar="FILE")] = None,
    json_: Json = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Look inside a model: attention, what heads look at, predictions by layer, and what changes them."""
    say = progress_printer(quiet)
    options = {"--html": html, "--why": why, "--patch": patch, "--ablate": ablate, "--scale": scale, "--target": target}
    if given is None:
        for name, value in options.items():
            if value:
                raise UsageError("U001", f"{name} needs an input", 'give a text after the model: "To be or not"')
    elif near:
        raise UsageError("U001", "--near looks at the weights", "leave out the input")
    changes = _changes(ablate or [], scale or [])
    if changes and (why or patch):
        raise UsageError("U001", "--why and --patch look at the model as it is", "leave out --ablate and --scale")
    bundle = load_bundle(model, device, "auto", quiet)
    lines: Iterator[str]
    if given is None:
        _show_weights(bundle, near, json_)
        say(f"next: headway inspect {shlex.quote(model)} {_try(bundle)}")
        return
    session = bundle.session
    seen = session.run((given, pair) if pair else given, target=target, changes=changes)
    _check_place(seen, kind, layer, head)
    found: dict[str, Any] = {"model": bundle.name, **(seen.to_dict() if json_ else {})}
    from headway.inspect.show import terminal

    plain = session.run(seen.reading) if changes else None
    lines = terminal.picture(seen, plain, kind=kind, layer=layer, head=head)
    if why:
        attribution = session.attribution((given, pair) if pair else given, target=target or "")
        found, lines = (
            {"model": bundle.name, "attribution": attribution.to_dict()},
            terminal.attribution_lines(attribution),
        )
    if patch:
        patching = session.patching(given, patch, kind=kind, target=target or "")
        found, lines = {"model": bundle.name, "patching": patching.to_dict()}, terminal.patching_lines(patching)
    if json_:
        print(json.dumps(found, allow_nan=False))
    else:
        _print(lines)
    if html is not None:
        from headway.inspect.show.page import write_page

        write_page(html, bundle.name, session.overview(), seen, found.get("attribution"), found.get("patching"))
        say(f"{html} written: open it in a browser")
        return
    say(f"next: headway inspect {shlex.quote(model)} {shlex.quote(given)} --html inside.html")


def _print(lines: Iterator[str]) -> None:
    screen = console()
    for line in lines:
        screen.print(line, markup=False)


def _show_weights(bundle: Any, near: str, as_json: bool) -> None:
    """The parts of a model, its positions, and the neighbours of a word."""
    from headway.inspect.show import terminal

    session = bundle.session
    found: dict[str, Any] = {"model": bundle.name, **session.overview(), "positions": session.positions()}
    found |= {"near": [each.to_dict() for each in session.neighbours(near)]} if near else {}
    if as_json:
        print(json.dumps(found, allow_nan=False))
        return
    _print(terminal.overview_lines(bundle.name, found))
    _print(terminal.position_lines(found["positions"]))
    if near:
        told = [f"{terminal.shown(each['word'])} {each['cosine']:.2f}" for each in found["near"]]
        _print(iter([f"nearest to {near}: {', '.join(told)}"]))


def _try(bundle: Any) -> str:
    """Words to try: those that fit the made-up data of the model's run, or what a user of the task would write."""
    from headway.tasks.registry import get_task

    tries = get_task(bundle.task).tries
    made_up = bundle.recipe is not None and not bundle.recipe.data.train
    return tries.made_up if made_up else tries.own


def _changes(ablate: list[str], scale: list[str]) -> list[Any]:
    from headway.inspect.changes import parse_change

    found: list[Any] = [parse_change(words) for words in ablate]
    for words in scale:
        part, _, factor = words.partition("=")
        try:
            found.append(parse_change(part, float(factor)))
        except ValueError:
            raise UsageError("U001", f"--scale {words}: a part, = and a number", "--scale 3.5=0.5") from None
    return found


def _check_place(seen: Any, kind: str, layer: int | None, head: int | None) -> None:
    """Refuse a layer or head that does not exist, before anything is drawn."""
    if layer is not None or head is not None:
        seen.attention(kind, layer or 0, head)

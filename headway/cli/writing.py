"""Verbs that use a model."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.app import Device, Model, Quiet, app, examples, load_bundle


@app.command(
    epilog=examples(
        'headway run last "The import statement"',
        'headway run ./model "Once" --tokens 200 --temperature 0.7 --seed 1',
        'headway run last "def" --temperature 0',
    )
)
def run(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="text to go on from")] = "",
    tokens: Annotated[int, typer.Option(help="how many tokens to write")] = 200,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token each time")] = 0.8,
    top_k: Annotated[int, typer.Option(help="choose among the k likeliest; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="choose among the likeliest that make up p")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="the same text each time")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write on from a prompt, token by token."""
    bundle = load_bundle(model, device, "auto", quiet)
    from headway.generate.decode import Sampling

    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    pieces = bundle.stream(prompt, tokens, sampling)
    print(prompt + next(pieces, ""), end="", flush=True)  # the first piece shows that there will be any
    for piece in pieces:
        print(piece, end="", flush=True)
    print()

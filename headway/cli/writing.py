"""Verbs that use a model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import Device, Model, Quiet, app, examples, load_bundle, talker
from headway.errors import UsageError


@app.command(
    epilog=examples(
        'headway run last "The import statement"',
        'headway run ./model "Once" --tokens 200 --seed 1 temperature=0.7 repetition=1.2',
        'headway run last "def" --beam 4 n_best=4 --trace beams.json',
        'headway run last --score "he likes apples" "apples likes he"',
        "headway run smollm2 --chat",
    )
)
def run(
    model: Model,
    words: Annotated[
        list[str] | None, typer.Argument(help="a text to go on from, and settings", metavar="TEXT")
    ] = None,
    tokens: Annotated[int, typer.Option(help="how many tokens to write")] = 200,
    seed: Annotated[int | None, typer.Option(help="the same text each time")] = None,
    beam: Annotated[int, typer.Option(help="beams to search with, instead of drawing")] = 0,
    score: Annotated[bool, typer.Option("--score", help="how likely each TEXT is")] = False,
    chat: Annotated[bool, typer.Option("--chat", help="a conversation, line by line")] = False,
    trace: Annotated[str, typer.Option(help="keep each step's alternatives as JSON", metavar="FILE")] = "",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write on from a text, token by token; settings such as temperature=0.7 top_k=40 follow it."""
    texts = list(words or [])
    if chat and texts and re.fullmatch(r"[a-z_]+=.*", texts[0]):
        texts.insert(0, "")  # a conversation needs no first text, so this is a setting
    settings = [] if score else texts[1:]
    values = _settings(settings, tokens, seed, beam)
    bundle = load_bundle(model, device, "auto", quiet)
    steps: list[Any] = []
    if score:
        _scores(bundle.score(texts))
    elif chat:
        _conversation(bundle, texts[0] if texts else "", tokens, values, talker(quiet))
    elif beam:
        for text, value in bundle.beams(texts[0] if texts else "", values, steps):
            print(f"{value:9.4f}  {text!r}")
    else:
        prompt = texts[0] if texts else ""
        _show(bundle.stream(prompt, tokens, values, steps if trace else None), prompt)
    if trace:
        Path(trace).write_text(json.dumps([asdict(step) for step in steps]) + "\n", encoding="utf-8")
        talker(quiet)(f"{len(steps)} steps in {trace}")


def _settings(words: list[str], tokens: int, seed: int | None, beam: int) -> Any:
    """What follows the text, as settings of sampling or of a beam search."""
    from headway.settings import build, parse_overrides

    plain = [word for word in words if "=" not in word]
    if plain:
        raise UsageError("U001", f"{plain[0]!r} is neither the text nor key=value", "put the text in quotes")
    values = parse_overrides(words)
    if isinstance(values.get("stop_strings"), str):
        values["stop_strings"] = [values["stop_strings"]]
    if beam:
        from headway.generate.beam import Beam

        return build(Beam, {"width": beam, "max_tokens": tokens, **values})
    from headway.generate.sampling import Sampling

    return build(Sampling, {"max_tokens": tokens, **({} if seed is None else {"seed": seed}), **values})


def _show(pieces: Iterator[str], before: str = "") -> str:
    """Print a text as it comes; the first piece shows that there will be any."""
    text = next(pieces, "")
    print(before + text, end="", flush=True)
    for piece in pieces:
        text += piece
        print(piece, end="", flush=True)
    print()
    return text


def _scores(found: list[Any]) -> None:
    for one in found:
        print(f"{one.log_probability:10.3f}  {one.tokens:4} tokens  perplexity {one.perplexity:10.2f}  {one.text}")


def _conversation(bundle: Any, first: str, tokens: int, sampling: Any, say: Callable[..., None]) -> None:
    """Turn by turn until the input ends; the whole conversation is read each time."""
    messages: list[dict[str, str]] = []
    if sys.stdin.isatty() and not first:
        say("an empty line or Ctrl-D ends it")
    while True:
        if first:
            line, first = first, ""
        else:
            try:
                line = input("> " if sys.stdin.isatty() else "").strip()
            except EOFError:
                return
        if not line:
            return
        messages.append({"role": "user", "content": line})
        messages.append({"role": "assistant", "content": _show(bundle.reply(messages, tokens, sampling))})

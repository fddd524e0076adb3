"""`headway data`: look at a dataset before training on it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.app import Json, Quiet, app, examples, progress_printer
from headway.cli.run.screen import colours
from headway.cli.tokens import visible
from headway.errors import UsageError, counted

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey
    from headway.tasks.base import Task

MOST_READ = 200_000_000
"""Bytes of the largest dataset that is read a second time, as its task reads it."""
SHOWN, SHOWN_TOKENS = 3, 400
"""The number of conversations printed, and of tokens of each; --json has all tokens."""
DIM, BRIGHT, PLAIN = "\x1b[2m", "\x1b[1;32m", "\x1b[0m"

File = Annotated[
    str,
    typer.Argument(
        help="a file, a folder, a glob in quotes or a hub dataset: org/name[@revision][:split]", metavar="FILE"
    ),
]


@app.command(
    epilog=examples(
        "headway data reviews.csv",
        "headway data train.jsonl.gz valid.jsonl.gz --column text",
        'headway data "corpus/*.txt" --tokenizer runs/tiny-0001',
        "headway data chats.jsonl --chat smollm2",
        "headway data org/name:train --json",
        "headway data reviews.csv --bad",
    )
)
def data(
    file: File,
    valid: Annotated[
        str, typer.Argument(help="validation data: how much of it also stands in FILE?", metavar="VALID")
    ] = "",
    column: Annotated[str, typer.Option(help="the column that holds the text", metavar="NAME")] = "",
    tokenizer: Annotated[
        Path | None, typer.Option(help="also count the tokens of this tokenizer", metavar="FOLDER")
    ] = None,
    chat: Annotated[
        str, typer.Option(help="show conversations as tokens of this model, with the answers marked", metavar="MODEL")
    ] = "",
    bad: Annotated[bool, typer.Option("--bad", help="list all bad rows, and nothing else")] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at a dataset before training on it.

    Rows, columns, lengths, labels, duplicates, and bad rows with file and line.
    """
    say = progress_printer(quiet)
    say("reading …", end="\r")
    keep = sys.maxsize if bad else 20
    if chat:
        others = {"VALID": valid, "--column": column, "--tokenizer": tokenizer}
        if wrong := [name for name, given in others.items() if given]:
            raise UsageError("U001", f"{wrong[0]} does not go with --chat", "leave one of them out")
        _show_chats(file, chat, keep, bad=bad, json_=json_)
        say("next: " + shlex.join(["headway", "train", "instruct", f"data.train={file}", f"model.from={chat}"]))
        return
    from headway.data.profile.survey import SHOWN_BAD, survey
    from headway.tasks.registry import suggest

    found = survey(file, column=column, valid=valid or None, tokenizer=tokenizer, keep=keep)
    task, fit = suggest(found)
    rows = found.rows + found.bad
    found = _as_read(found, task, fit.settings, keep)
    task = None if found.task and found.bad >= rows else task  # no row can be used
    if json_:
        print(json.dumps(found.as_dict()))
    else:
        for line in found.bad_lines if bad else found.lines():
            print(line)
    if step := _next(found, task, fit.settings, all_shown=bad or found.bad <= SHOWN_BAD):
        say(step)


def _as_read(found: Survey, task: Task | None, settings: Sequence[str], keep: int) -> Survey:
    """The survey with the rows that the task cannot use among the bad ones: rows without a label, say."""
    from headway.config.recipe import DataConfig
    from headway.data.files.rows import BadRows

    if task is None or found.bytes > MOST_READ:
        return found
    given: dict[str, Any] = dict(word.removeprefix("data.").split("=", 1) for word in settings)
    bad = BadRows("skip", keep)
    task.bad_rows(found.spec, DataConfig(**given), bad)
    name = task.starter or task.name
    return replace(found, bad=bad.count, bad_lines=tuple(bad.first), task=name) if bad.count > found.bad else found


def _next(found: Survey, task: Task | None, settings: Sequence[str], all_shown: bool) -> str:
    """What to do next: train, or look at the bad rows."""
    from headway.data.files.lines import recode_hint

    if task is None:
        if any("not UTF-8" in line for line in found.bad_lines[:1]):
            return recode_hint()
        more = " --column NAME" if not found.bad else "" if all_shown else " --bad"
        return f"next: {shlex.join(['headway', 'data', found.spec])}{more}" if more else ""
    words = ["headway", "train", task.starter or task.name, f"data.train={found.spec}"]
    if found.overlap:
        words.append(f"data.valid={found.overlap.valid}")
    if found.bad:
        settings = [*settings, "data.bad_rows=skip"]
    return f"next: {shlex.join([*words, *settings])}"


def _show_chats(file: str, model: str, keep: int, *, bad: bool, json_: bool) -> None:
    """Print conversations as tokens, and which of them count in the loss."""
    from headway.checks.tokenization import open_tokenizer
    from headway.data.chat_template.template import ensure_template
    from headway.data.datasets.chat import encode_conversations, read_conversations
    from headway.data.files.rows import BadRows

    tokenizer, template = ensure_template(open_tokenizer(model))
    flaws = BadRows("skip", keep)
    chats = encode_conversations(read_conversations(file, flaws), tokenizer, template, flaws)
    shown = [_tokens(chats, number, tokenizer) for number in range(min(SHOWN, len(chats)))]
    if json_:
        print(json.dumps({**_facts(chats, flaws), "examples": shown}))
        return
    if bad:
        print("\n".join(flaws.first))
        return
    print("\n".join(_lines(chats, flaws)))
    for tokens in shown:
        print("\n" + painted(tokens, colour=colours()))


def _facts(chats: Any, flaws: Any) -> dict[str, Any]:
    lengths = [int(b - a) for a, b in zip(chats.starts[:-1], chats.starts[1:], strict=True)]
    counted = int(chats.assistant_mask.sum())
    return {
        "conversations": len(chats),
        "messages": sum(map(len, chats.messages)),
        "tokens": len(chats.ids),
        "answer_tokens": counted,
        "share": round(counted / max(1, len(chats.ids)), 4),
        "longest": max(lengths, default=0),
        "median": sorted(lengths)[len(lengths) // 2] if lengths else 0,
        "ninety_percent": sorted(lengths)[min(len(lengths) - 1, len(lengths) * 9 // 10)] if lengths else 0,
        "bad_rows": flaws.count,
        "bad": flaws.first,
    }


def _lines(chats: Any, flaws: Any) -> list[str]:
    facts = _facts(chats, flaws)
    lines = [
        ", ".join(counted(facts[name], name) for name in ("conversations", "messages", "tokens")),
        f"{facts['answer_tokens']:,} tokens of answers ({facts['share']:.1%}) count in the loss",
        f"tokens per conversation: median {facts['median']:,}, 90 % have at most {facts['ninety_percent']:,}, "
        f"the longest {facts['longest']:,}",
    ]
    if flaws.count:
        lines.append(f"{flaws.count:,} bad rows, the first: {flaws.first[0]}")
    return lines


def _tokens(chats: Any, number: int, tokenizer: Any) -> list[dict[str, Any]]:
    here = slice(int(chats.starts[number]), int(chats.starts[number + 1]))
    ids = [int(i) for i in chats.ids[here]]
    named = zip(ids, tokenizer.pieces(ids), chats.assistant_mask[here], strict=True)
    return [{"id": i, "text": _text(tokenizer, i, piece), "answer": bool(counts)} for i, piece, counts in named]


def _text(tokenizer: Any, token: int, piece: str) -> str:
    """The text of a token; the vocabulary's spelling if the text is part of a character or would lose its space."""
    text = str(tokenizer.decode([token], skip_special=False))
    return piece if "\ufffd" in text or not text or piece.startswith("\u2581") else text


def painted(tokens: list[dict[str, Any]], *, colour: bool) -> str:
    """Tokens between bars; those that count in the loss are bright, or in ⟦…⟧ without colours."""
    from itertools import groupby

    around = {True: (BRIGHT, PLAIN), False: (DIM, PLAIN)} if colour else {True: ("⟦", "⟧"), False: ("", "")}
    text = ""
    for counts, some in groupby(tokens[:SHOWN_TOKENS], key=lambda token: token["answer"]):
        begin, end = around[counts]
        labels = [visible(token["text"]) + "\n" * token["text"].endswith("\n") for token in some]
        text += begin + "│".join(labels).replace("\n│", "\n") + end
    left = len(tokens) - SHOWN_TOKENS
    return text + (f" … {left:,} more" if left > 0 else "")

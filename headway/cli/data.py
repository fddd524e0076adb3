"""`headway data`: look at a dataset before training on it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.api.dataset import next_of_images, next_of_pairs, next_of_sounds, next_step, profile
from headway.cli.app import Json, Quiet, app, examples
from headway.cli.run.screen import colours
from headway.cli.tokens import visible
from headway.config.ranges import check_encoding
from headway.config.recipe import UTF_8
from headway.errors import UsageError, counted
from headway.progress import progress_printer

SHOWN, SHOWN_TOKENS = 3, 400
"""The number of conversations printed, and of tokens of each; --json has all tokens."""
DIM, BRIGHT, PLAIN = "\x1b[2m", "\x1b[1;32m", "\x1b[0m"

File = Annotated[
    str,
    typer.Argument(
        help="a file (also book.xlsx#Sheet), two parallel files SOURCE,TARGET, a folder, a glob in quotes or a hub "
        "dataset: org/name[@revision][:split]",
        metavar="FILE",
    ),
]


@app.command(
    epilog=examples(
        "headway data reviews.csv",
        "headway data train.en,train.de",
        "headway data old.csv --encoding cp1252",
        "headway data train.jsonl.gz valid.jsonl.gz --column text",
        'headway data "corpus/*.txt" --tokenizer runs/tiny-0001',
        "headway data photos --sheet photos.html",
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
    encoding: Annotated[
        str, typer.Option(help="the encoding of text files, such as cp1252; a byte order mark comes first")
    ] = UTF_8,
    sheet: Annotated[
        Path | None, typer.Option(help="of images: write a contact sheet, .png or .html", metavar="FILE")
    ] = None,
    bad: Annotated[bool, typer.Option("--bad", help="list all bad rows, and nothing else")] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at a dataset before training on it.

    Rows, columns, lengths, labels, duplicates, and bad rows with file and line.
    """
    from headway.data.datasets.parallel import split_pair_spec
    from headway.data.files.lines import read_as
    from headway.data.files.locate import find_files
    from headway.data.profile.pictures import holds_images
    from headway.data.profile.sounds import holds_sounds

    check_encoding("--encoding", encoding)
    say = progress_printer(quiet)
    keep = sys.maxsize if bad else 20
    sides, others = split_pair_spec(file), {"VALID": valid, "--column": column, "--tokenizer": tokenizer}
    others |= {"--chat": chat if sides else ""}
    if (chat or sides) and (wrong := [name for name, given in others.items() if given]):
        other = "two files SOURCE,TARGET" if sides else "--chat"
        raise UsageError("U001", f"{wrong[0]} does not go with {other}", "leave one of them out")
    kinds = (("images", holds_images), ("sounds", holds_sounds))
    if not (sides or chat) and (kind := next((name for name, holds in kinds if holds(file)), "")):
        others["--encoding"] = "" if encoding == UTF_8 else encoding
        others["--sheet"] = "" if kind == "images" else str(sheet or "")
        if wrong := [name for name, given in others.items() if given]:
            raise UsageError("U001", f"{wrong[0]} does not go with {kind}", "leave it out")
        if kind == "images":
            step = _show_images(file, keep, sheet, bad=bad, json_=json_)
        else:
            step = _show_sounds(file, keep, bad=bad, json_=json_)
    elif sheet is not None:
        find_files(file)  # a missing file is said first
        raise UsageError("U001", "--sheet is for images", f"{file} holds none")
    elif chat:
        with read_as(encoding):
            _show_chats(file, chat, keep, bad=bad, json_=json_)
        step = "next: " + shlex.join(["headway", "train", "instruct", f"data.train={file}", f"model.from={chat}"])
    elif sides:
        from headway.data.profile.pairs import survey_pairs

        pairs = survey_pairs(*sides, keep=keep, encoding=encoding)
        _print(pairs, bad=bad, json_=json_)
        step = next_of_pairs(pairs, encoding)
    else:
        from headway.data.profile.survey import SHOWN_BAD

        found = profile(file, column=column, valid=valid, tokenizer=tokenizer, keep=keep, encoding=encoding)
        _print(found.survey, bad=bad, json_=json_)
        step = next_step(found, all_shown=bad or found.survey.bad <= SHOWN_BAD)
    if step:
        say(step)


def _show_images(file: str, keep: int, sheet: Path | None, *, bad: bool, json_: bool) -> str:
    """Print a survey of images, write its contact sheet, and return what to do next."""
    from headway.data.profile.pictures import survey_images, write_sheet

    found, thumbnails = survey_images(file, keep)
    _print(found, bad=bad, json_=json_)
    if sheet is not None:
        write_sheet(sheet, found, thumbnails)
    return next_of_images(found, sheet)


def _show_sounds(file: str, keep: int, *, bad: bool, json_: bool) -> str:
    """Print a survey of sounds, and return what to do next."""
    from headway.data.profile.sounds import survey_sounds

    found = survey_sounds(file, keep)
    _print(found, bad=bad, json_=json_)
    return next_of_sounds(found)


def _print(found: Any, *, bad: bool, json_: bool) -> None:
    """A survey: all its facts, its bad lines, or one screen."""
    if json_:
        print(json.dumps(found.as_dict()))
    else:
        for line in found.bad_lines if bad else found.lines():
            print(line)


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
    named = zip(ids, tokenizer.shown(ids), chats.assistant_mask[here], strict=True)
    return [{"id": i, "text": text, "answer": bool(counts)} for i, text, counts in named]


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

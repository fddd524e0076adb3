"""`headway tokens`: show how tokenizers split a text."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import Json, Quiet, app, console, examples
from headway.errors import DataError, NotFoundError, UsageError, counted
from headway.progress import progress_printer

MOST = 3
"""The most tokenizers side by side."""
TEXT_LIMIT = 4_000_000
"""The most bytes of a text."""
ROWS = 2000
"""The most lines of the table; --json has all."""
STYLES = ("black on cyan", "black on yellow")
UNKNOWN = "bold white on red"
USE = 'try: headway tokens bytes "some text"'

Names = Annotated[
    list[str],
    typer.Argument(
        help="folders, tokenizer.json files, hub ids, last or bytes; then the text (- is stdin)",
        metavar="TOKENIZER… TEXT",
    ),
]
File = Annotated[Path | None, typer.Option("--file", help="read the text from a file", metavar="FILE")]
Merges = Annotated[str, typer.Option(help="show instead how this word is merged", metavar="WORD")]


@app.command(
    epilog=examples(
        'headway tokens last "The import statement"',
        'headway tokens bytes ./model "naïve café"',
        "headway tokens last --merges unbelievable",
        'headway tokens ./model "lower newest" --steps',
    )
)
def tokens(
    what: Names,
    file: File = None,
    merges: Merges = "",
    steps: Annotated[bool, typer.Option("--steps", help="also show how each word is merged, for a short text")] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show how tokenizers split a text, up to three side by side."""
    names, text = _arguments(what, file, merges)
    from headway.checks.tokenization import open_tokenizer, tokenize, words

    opened = {name: open_tokenizer(name) for name in names}
    tokenized_texts = {} if merges else {name: tokenize(tokenizer, text) for name, tokenizer in opened.items()}
    built = {name: words(tokenizer, text) for name, tokenizer in opened.items()} if steps or merges else {}
    if json_:
        print(_as_json(names, tokenized_texts, built))
        return
    screen = console()
    for name in names:
        if name in tokenized_texts:
            _show_tokenized(screen, name, tokenized_texts[name], table=len(names) == 1)
        elif len(names) > 1:
            screen.print(visible(name), markup=False)
        for word in built.get(name, ()):
            _show_word(screen, word)
    progress_printer(quiet)(
        f"next: headway tokens {shlex.quote(visible(names[0]))} --merges WORD"
        if tokenized_texts
        else f"next: {USE[5:]}"
    )


def _arguments(what: Sequence[str], file: Path | None, merges: str) -> tuple[list[str], str]:
    """The tokenizers' names, each once, and the text."""
    own = file is None and not merges
    if file is not None and merges:
        raise UsageError("U001", "--file and --merges both give a text", "leave one of them out")
    names = list(dict.fromkeys(what[:-1] if own else what))
    if not names:
        raise UsageError("U001", f"{visible(what[0])}: give a tokenizer and a text", USE)
    if len(names) > MOST:
        hint = "" if own else "with --file or --merges every argument is a tokenizer"
        raise UsageError("U001", f"{len(names)} tokenizers; at most {MOST}", hint)
    if own and what[-1] != "-":
        return names, what[-1]
    return names, merges or _read(file)


def _read(file: Path | None) -> str:
    where = "stdin" if file is None else visible(str(file))
    try:
        if file is None:
            raw = sys.stdin.buffer.read(TEXT_LIMIT + 1)
        else:
            with file.open("rb") as opened:
                raw = opened.read(TEXT_LIMIT + 1)
    except OSError as error:
        raise NotFoundError("F001", f"{where} cannot be read: {error.strerror or error}") from None
    if len(raw) > TEXT_LIMIT:
        raise DataError("D001", f"{where} has more than {TEXT_LIMIT:,} bytes", "give a part of it")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError("D003", f"{where} is not UTF-8, at byte {error.start:,}") from None


def visible(text: str) -> str:
    """Escape characters that a terminal would act on, or that cannot be seen.

    These are control characters and those that reorder or hide text. Spaces stay; backslashes are doubled.
    """
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode() for char in text
    )


def _ratio(amount: int, count: int) -> float | None:
    return round(amount / count, 3) if count else None


def _facts(tokenized: Any) -> dict[str, Any]:
    size = len(tokenized.text.encode())
    return {
        "count": len(tokenized.tokens),
        "characters": len(tokenized.text),
        "bytes": size,
        "characters_per_token": _ratio(len(tokenized.text), tokenized.of_text),
        "bytes_per_token": _ratio(size, tokenized.of_text),
        "unknown": tokenized.unknown,
        "inserted": len(tokenized.tokens) - tokenized.of_text,
    }


def _as_json(names: Sequence[str], tokenized_texts: dict[str, Any], built: dict[str, Any]) -> str:
    results = []
    for name in names:
        result: dict[str, Any] = {"tokenizer": name}
        if name in tokenized_texts:
            result |= _facts(tokenized_texts[name])
            fields = ("id", "piece", "start", "end", "unknown", "inserted")
            result["tokens"] = [
                {field: getattr(token, field) for field in fields} | {"bytes": token.data.hex(" ")}
                for token in tokenized_texts[name].tokens
            ]
        if name in built:
            result["words"] = [
                {"text": word.text, "pieces": word.pieces, "steps": word.steps}
                | ({"scores": word.scores} if word.scores else {})
                | ({"runner_up": word.runner_up, "runner_up_score": word.runner_up_score} if word.runner_up else {})
                for word in built[name]
            ]
        results.append(result)
    return json.dumps(results)


def _show_tokenized(screen: Any, name: str, tokenized: Any, *, table: bool) -> None:
    facts = _facts(tokenized)
    count = facts["count"]
    line = f"{visible(name)}: {counted(count, 'tokens')}"
    for what in ("characters", "bytes"):
        ratio = facts[f"{what}_per_token"]
        line += f", {counted(facts[what], what)}" + (f" ({ratio:.2f} per token)" if ratio is not None else "")
    screen.print(line, markup=False)
    if facts["unknown"]:
        screen.print(f"{facts['unknown']:,} of them unknown (?)", markup=False)
    if not tokenized.tokens:
        return
    screen.print(_pieces(tokenized.tokens))
    if table:
        _show_table(screen, tokenized.tokens)


def _pieces(shown: Sequence[Any]) -> Any:
    """The pieces on one line, separated by bars and, on a terminal, by alternating colours."""
    from rich.text import Text

    line = Text()
    for number, token in enumerate(shown[:ROWS]):
        line.append("│" if number else "")
        line.append(_label(token), style=_style(number, token))
    line.append(f"│… {len(shown) - ROWS:,} more" if len(shown) > ROWS else "")
    return line


def _label(token: Any) -> str:
    return visible(token.piece) + ("?" if token.unknown else "")


def _style(number: int, token: Any) -> str:
    return UNKNOWN if token.unknown else STYLES[number % 2]


def _show_table(screen: Any, shown: Sequence[Any]) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    rows = shown[:ROWS]
    table = [("", "id", "piece", "bytes", "characters")]
    for i, token in enumerate(rows):
        place = "" if token.inserted else f"{token.start}–{token.end}"
        table.append((str(i), str(token.id), _label(token), token.data.hex(" "), place))
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        line = Text()
        for column, text in enumerate(row):
            space = " " * (widths[column] - cell_len(text))
            numeric = column < 2
            line.append(space if numeric else "")
            line.append(text, style=_style(number - 1, rows[number - 1]) if number and column == 2 else "")
            line.append("  " if numeric else space + "  ")
        line.rstrip()
        screen.print(line)
    if len(shown) > ROWS:
        screen.print(f"… {len(shown) - ROWS:,} more (--json has all)")


def _show_word(screen: Any, word: Any) -> None:
    from rich.cells import cell_len

    label, before = visible(word.text), None
    for pieces in word.steps:
        start = label if before is None else " " * cell_len(label)
        line = f"{start}  {' '.join(map(visible, pieces))}"
        screen.print(line + (f"   ({_merged(before, pieces)})" if before else ""), markup=False)
        before = pieces
    if word.scores:
        _show_scores(screen, "likeliest", word.pieces, sum(word.scores), word.scores)
    if word.runner_up:
        _show_scores(screen, "runner-up", word.runner_up, word.runner_up_score, [])


def _show_scores(screen: Any, label: str, pieces: Sequence[str], total: float, scores: Sequence[float]) -> None:
    each = [visible(p) + (f" {scores[i]:.2f}" if scores else "") for i, p in enumerate(pieces)]
    screen.print(f"  {label}  {total:.2f}  {'  '.join(each)}", markup=False)


def _merged(before: Sequence[str], after: Sequence[str]) -> str:
    place = next(i for i, piece in enumerate(after) if piece != before[i])
    return f"{visible(before[place])} + {visible(before[place + 1])}"

"""How the answers of a model look in a terminal, task by task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway.cli.run.screen import colours

LETTERS = 100
"""Of a text that is shown beside its answer."""
AROUND = 30
"""Characters of a context on each side of an answer."""
PALETTE = (31, 166, 28, 160, 136, 97, 30, 125)
"""Colours of the 256 for labels, in turn; all can be read on black and on white."""
NO_ANSWER = "no answer"

Found = Sequence[tuple[Any, Mapping[str, Any]]]
"""Items and what was found of each."""


def line(text: str, letters: int = LETTERS) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _classify(found: Found) -> None:
    rows = []
    for item, result in found:
        label, sure = result["label"], result.get("probability")
        said = f"{label:.4f}" if sure is None else ", ".join(label) or "none" if isinstance(label, list) else label
        text = item.text if item.pair is None else f"{item.text} ⟂ {item.pair}"
        rows.append((said, "" if sure is None else f"{sure:6.1%}", line(text)))
    wide = max(len(label) for label, *_ in rows)
    for label, share, text in rows:
        print(f"{label:{wide}}  {share}  {text}")


def _tag(found: Found) -> None:
    painted = colours()
    for item, result in found:
        entities = result["entities"]
        print(marked(item.text, entities, painted))
        wide = max((len(entity["label"]) for entity in entities), default=0)
        for entity in entities:
            place, name = f"{entity['start']}–{entity['end']}", f"{entity['label']:{wide}}"
            name = _coloured(name, entity["label"]) if painted else name
            print(f"  {place:>9}  {name}  {entity['score']:6.1%}  {line(entity['text'])}")


def marked(text: str, entities: Sequence[Mapping[str, Any]], painted: bool) -> str:
    """A text with its entities in colours, or in brackets with their labels."""
    parts, at = [], 0
    for entity in entities:
        inside = text[entity["start"] : entity["end"]]
        parts += [text[at : entity["start"]]]
        parts += [_coloured(inside, entity["label"]) if painted else f"[{entity['label']} {inside}]"]
        at = entity["end"]
    return "".join([*parts, text[at:]])


def _coloured(text: str, label: str) -> str:
    return f"\x1b[1;38;5;{PALETTE[sum(label.encode()) % len(PALETTE)]}m{text}\x1b[0m"


def _answer(found: Found) -> None:
    for item, result in found:
        if len(found) > 1:
            print(line(item.text))
        for each in result["best"]:
            said, where = NO_ANSWER, ""
            if each["answer"] is not None:
                said = line(each["answer"])
                before, after = item.pair[: each["start"]][-AROUND:], item.pair[each["end"] :][:AROUND]
                where = f"  … {line(f'{before}⟦{said}⟧{after}', LETTERS + 2 * AROUND + 2)} …"
            print(f"{each['score']:6.1%}  {said}{where}")


def _fill(found: Found) -> None:
    for _, result in found:
        print(result["best"])
        for number, blank in enumerate(result["blanks"], start=1):
            words = "  ".join(f"{each['text']} {each['probability']:.1%}" for each in blank["choices"])
            print(f"  {number}  {words}")


def _score(found: Found) -> None:
    for item, one in found:
        show_score(one["log_probability"], one["tokens"], one["perplexity"], item.text)


def show_score(log_probability: float, tokens: int, perplexity: float, text: str) -> None:
    print(f"{log_probability:10.3f}  {tokens:4} tokens  perplexity {perplexity:10.2f}  {text}")


def _embed(found: Found) -> None:
    for item, result in found:
        row = result["embedding"]
        print(f"{len(row)} numbers  {' '.join(f'{value:+.4f}' for value in row[:6])} …  {line(item.text, 60)}")


def _seq2seq(found: Found) -> None:
    for item, result in found:
        if len(found) > 1 or "alignment" in result:
            print(line(item.text))
        for each in result.get("best", ()):
            print(f"{each['score']:9.4f}  {each['new']}")
        if "best" not in result:
            print(result["new"])
        if "alignment" in result:
            _aligned(result["alignment"])


def _aligned(words: Mapping[str, Any]) -> None:
    """A line for each word that was written, with the one it came from."""
    wide = max((len(word) for word in words["new"]), default=0)
    for link in words["links"]:
        print(f"  {words['new'][link['new']]:{wide}}  {link['share']:4.0%}  {words['text'][link['text']]}")


def show_nearest(queries: Sequence[str], found: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    for query, rows in zip(queries, found, strict=True):
        if len(queries) > 1:
            print(line(query))
        wide = max(len(str(row["line"])) for row in rows)
        for row in rows:
            print(f"{row['cosine']:7.4f}  line {row['line']:{wide}}  {line(row['text'])}")


SHOW: dict[str, Callable[[Found], None]] = {
    "classify": _classify,
    "tag": _tag,
    "answer": _answer,
    "mlm": _fill,
    "score": _score,
    "embed": _embed,
    "seq2seq": _seq2seq,
}
"""By task, as in `tasks.predictions`."""

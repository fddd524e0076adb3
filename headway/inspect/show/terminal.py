"""An inspection as text for a terminal: tokens, predictions, what heads look at, one map, the logit lens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headway.errors import counted
from headway.inspect.attribution import Attribution
from headway.inspect.heads import CLEAR, HeadStats, Maps
from headway.inspect.patching import Patching, Scores, place_of
from headway.inspect.reading.base import Grid, Token
from headway.inspect.readout import Answer
from headway.inspect.trace import Pass
from headway.inspect.weights.embeddings import EmbeddingMap
from headway.inspect.weights.units import units
from headway.progress import printable
from headway.report.format import brief

SHADES = " ░▒▓█"
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 100
"""Columns of a picture."""
MOST = 32
"""Positions of a map that are drawn; the others are in the page and in JSON."""
FEW = 5
"""Units that are named."""
SAMPLED = 24
"""Positions that are compared with each other in a picture."""
LABEL = 12
"""Columns of a label."""
SIGNS = {
    "the previous token": "←",
    "the next token": "→",
    "the token itself": "=",
    "the first token": "|",
    "separators": "¦",
    "the same token elsewhere": "≈",
    "everything": "·",
    "tokens nearby": "~",
    "some tokens": "*",
}
"""One sign for what a head looks at."""
ENDLESS = {"the first token", "the token itself", "everything"}
"""What many heads look at that do nothing in particular."""


def shown(label: str) -> str:
    """A token in one line: spaces and line ends can be seen, nothing reaches the terminal that it would act on."""
    text = label.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return printable(text) or "∅"


def picture(
    seen: Pass, plain: Pass | None = None, *, kind: str = "", layer: int | None = None, head: int | None = None
) -> Iterator[str]:
    """All of an inspection; `plain` is the pass without the changes.

    `layer` and `head` choose the map that is drawn, by default a head with a clear pattern.
    """
    if seen.part().stack is None:
        yield from prediction_lines(seen)
        yield from hop_lines(seen)
        return
    yield from tokens_lines(seen)
    yield from prediction_lines(seen) if plain is None or seen.readout is None else change_lines(plain, seen)
    chosen = seen.part(kind).kind if kind else ("cross" if "cross" in seen.kinds else seen.part().kind)
    for each in [kind] if kind else seen.kinds:
        yield from head_lines(seen, each)
    stats = strongest(seen.head_stats(chosen), layer, head)
    yield from map_lines(seen, stats)
    yield from lens_lines(seen)
    yield from unit_lines(seen)


def tokens_lines(seen: Pass) -> Iterator[str]:
    """The tokens of each stack, with how likely the model found each."""
    for kind in seen.kinds:
        if seen.part(kind).cross:
            continue
        tokens = seen.tokens_of(kind)
        grid = seen.grid(kind)
        what = f"{kind}: " if len(seen.kinds) > 1 else ""
        if grid is not None or (seen.reading.medium != "text" and seen.part(kind).path.endswith("encoder")):
            size = f", {grid.rows} × {grid.columns} patches" if grid is not None else ""
            yield f"{what}{len(tokens)} positions{size}"
            continue
        likely = seen.probabilities() if kind == seen.part().kind else [None] * len(tokens)
        known = any(p is not None for p in likely)
        yield f"{what}{len(tokens)} tokens" + (", and how likely the model found each" if known else "")
        yield from _pieces([shown(token.label) for token in tokens], likely if known else [])


def _pieces(labels: Sequence[str], likely: Sequence[float | None]) -> Iterator[str]:
    """Pieces with bars between them, and a bar for each probability below, wrapped."""
    top, below = "", ""
    for i, label in enumerate(labels):
        if top and len(top) + len(label) > WIDTH:
            yield f"  {top}"
            if likely:
                yield f"  {below}".rstrip()
            top = below = ""
        p = likely[i] if likely else None
        mark = " " if p is None else BARS[min(int(p * len(BARS)), len(BARS) - 1)]
        top += ("│" if top else "") + label
        below += (" " if below else "") + mark + " " * (len(label) - 1)
    yield f"  {top}"
    if likely:
        yield f"  {below}".rstrip()


def prediction_lines(seen: Pass, k: int = 5) -> Iterator[str]:
    """The likeliest answers: after the last token, for each blank, of the whole input."""
    if seen.readout is None:
        return
    rows = seen.predictions(k)
    if seen.readout.head == "span":
        for end, row in zip(("start", "end"), rows, strict=True):
            yield from _bars(f"{end} of the answer", [spelled(seen, answer) for answer in row])
    elif seen.readout.head == "lm" and seen.part().config.causal:
        yield from _bars("next token", rows[-1])
    elif seen.readout.head == "lm":
        blanks = [i for i, token in enumerate(seen.tokens) if token.id == seen.reading.blank]
        for i in blanks:
            yield from _bars(f"blank at {i}", rows[i])
        if not blanks:
            yield "no blank to fill in: write [MASK] for a word"
    elif len(rows) == 1 and seen.readout.number:
        yield f"answer: {rows[0][0].probability:.4g}"
    elif len(rows) == 1:
        yield from _bars("answer", rows[0])
    elif seen.readout.head == "tag":
        told = [f"{shown(t.label)} {row[0].label}" for t, row in zip(seen.tokens, rows, strict=True) if not t.special]
        yield "labels"
        yield f"  {' │ '.join(told)}"


def spelled(seen: Pass, answer: Answer) -> Answer:
    """A position as the token that stands there."""
    return replace(answer, label=f"{seen.tokens[answer.id].label}@{answer.id}")


def _bars(title: str, answers: Sequence[Answer]) -> Iterator[str]:
    yield title
    wide = max(len(shown(answer.label)) for answer in answers)
    for answer in answers:
        bar = "█" * round(40 * answer.probability)
        yield f"  {shown(answer.label):<{wide}}  {answer.probability:6.1%}  {bar}".rstrip()


def change_lines(before: Pass, after: Pass, k: int = 5) -> Iterator[str]:
    """How changes of the model move its answer, where the answer is read."""
    readout = before.require_readout()
    rows = [readout.chances(each.logits())[place_of(each, None)] for each in (before, after)]
    ids = list(dict.fromkeys([*rows[1].topk(min(k, len(rows[1]))).indices.tolist(), int(rows[0].argmax())]))
    yield f"with {counted(len(after.changes), 'changes')}: each answer before, and after"
    wide = max(len(shown(readout.name(i))) for i in ids)
    for i in ids:
        was, now = (float(row[i]) for row in rows)
        bar = "█" * round(40 * now)
        yield f"  {shown(readout.name(i)):<{wide}}  {was:6.1%} → {now:6.1%}  {bar}".rstrip()


def hop_lines(seen: Pass) -> Iterator[str]:
    """The sentences of a story in the order in which they were told, and how much each hop looked at each."""
    weights, sentences = seen.attention()[:, 0, 0], seen.keys_of()
    wide = min(max(len(shown(token.label)) for token in sentences), WIDTH // 2)
    yield f"{seen.tokens[0].label}  what each hop looks at"
    yield f"  {'':{wide}}  {' '.join(f'{hop:>6}' for hop in range(len(weights)))}"
    for number in reversed(range(len(sentences))):
        shares = " ".join(f"{weight:6.1%}" for weight in weights[:, number])
        yield f"  {printable(sentences[number].label)[:wide]:<{wide}}  {shares}"


def head_lines(seen: Pass, kind: str) -> Iterator[str]:
    """A sign for each head of each layer, and what the signs mean."""
    stats = seen.head_stats(kind)
    part = seen.part(kind)
    signs = [SIGNS[each.looks_at] for each in stats]
    count = part.config.n_heads
    yield f"{kind} attention: what each head looks at"
    yield f"  {'head':>8}  {' '.join(f'{head:>2}' for head in range(count))}"
    for layer in range(part.layers):
        row = signs[layer * count : (layer + 1) * count]
        yield f"  layer {layer:>2}  {' '.join(f'{sign:>2}' for sign in row)}"
    used = {each.looks_at for each in stats}
    yield "  " + "   ".join(f"{sign} {name}" for name, sign in SIGNS.items() if name in used)


def strongest(stats: Sequence[HeadStats], layer: int | None, head: int | None) -> HeadStats:
    """The head with the clearest pattern among those of a layer, or with that number."""
    some = [s for s in stats if layer in (None, s.layer) and head in (None, s.head)]
    named = [s for s in some if s.looks_at not in ENDLESS]
    return max(
        named or some, key=lambda s: max([p for n, p in s.shares.items() if n not in ("first", "self")] or [0.0])
    )


def distance_lines(word: str, apart: Sequence[float]) -> Iterator[str]:
    """How far apart a word is in two texts, layer by layer."""
    yield f"{shown(word)} in both texts: cosine distance by layer"
    most = max(*apart, 1e-9)
    for number, value in enumerate(apart):
        name = "embeddings" if number == 0 else f"layer {number - 1}"
        yield f"  {name:<10}  {value:5.3f}  {'█' * round(40 * value / most)}".rstrip()


def neighbour_lines(word: str, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The tokens nearest to a word."""
    yield f"nearest to {shown(word)}, by the cosine of their vectors"
    wide = max(len(shown(each["word"])) for each in found)
    for each in found:
        bar = "█" * round(40 * max(each["cosine"], 0))
        yield f"  {shown(each['word']):<{wide}}  {each['cosine']:5.2f}  {bar}".rstrip()


def map_of_words(found: EmbeddingMap) -> Iterator[str]:
    """Words where their vectors lie; a word that would cover another one is left out."""
    points = found.points.numpy()
    low, high = points.min(0), points.max(0)
    places = (points - low) / np.maximum(high - low, 1e-9)
    rows = [[" "] * WIDTH for _ in range(WIDTH // 4)]
    left_out = 0
    for word, (x, y) in zip(found.words, places, strict=True):
        label = f"·{shown(word)[:LABEL]}"
        column, row = round(x * (WIDTH - len(label))), round((1 - y) * (len(rows) - 1))
        if any(cell != " " for cell in rows[row][max(0, column - 1) : column + len(label) + 1]):
            left_out += 1
            continue
        rows[row][column : column + len(label)] = label
    share = found.share
    held = "near words are alike" if share is None else f"the two directions hold {share:.0%} of the variance"
    yield f"{len(found.words)} words; {held}"
    yield from ("  " + "".join(row).rstrip() for row in rows)
    if left_out:
        yield f"  {left_out} words would cover others; --json has all"


def map_lines(seen: Pass, stats: HeadStats) -> Iterator[str]:
    """The map of one head: rows look at columns. Of a picture, what all positions look at together."""
    share = max(stats.shares.values(), default=0.0)
    sure = f" ({share:.0%})" if share >= CLEAR else ""
    what = f"looks at {stats.looks_at}{sure}, spreads over {stats.keys:.1f} keys"
    yield f"{stats.kind} layer {stats.layer} head {stats.head}: {what}"
    weights = seen.attention(stats.kind, stats.layer, stats.head)
    grid = seen.grid(stats.kind) if stats.kind != "cross" else None
    if grid is not None and grid.leading + grid.rows * grid.columns == weights.shape[1]:
        yield from _grid_lines(weights, grid)
        return
    queries, keys = seen.tokens_of(stats.kind), seen.keys_of(stats.kind)
    yield from _matrix(weights, queries, keys)


def _grid_lines(weights: Maps, grid: Grid) -> Iterator[str]:
    """Patches as a picture: what the first position looks at, or the mean of all where no token stands before them."""
    row = weights[0] if grid.leading else weights.mean(0)
    patches = row[grid.leading :].reshape(grid.rows, grid.columns)
    yield "  from " + ("the class token" if grid.leading else "all positions") + f", {patches.sum():.0%} at patches"
    for line in patches / max(float(patches.max()), 1e-9):
        yield "  " + "".join(2 * shade(float(value)) for value in line)


def shade(value: float) -> str:
    """A block for a number from 0 to 1: small weights can be told from none."""
    return SHADES[min(int(np.sqrt(max(value, 0.0)) * len(SHADES)), len(SHADES) - 1)]


def _matrix(weights: Maps, queries: Sequence[Token], keys: Sequence[Token]) -> Iterator[str]:
    """The last positions of a map, each row from a token, with its strongest key beside it."""
    rows, columns = range(max(0, len(queries) - MOST), len(queries)), range(max(0, len(keys) - MOST), len(keys))
    labels = [shown(queries[i].label)[:LABEL] for i in rows]
    wide = max(map(len, labels))
    yield f"  {'':{wide}}  {''.join(f'{shown(keys[j].label)[:2]:<2}' for j in columns)}"
    for i, label in zip(rows, labels, strict=True):
        best = int(weights[i].argmax())
        cells = "".join(2 * shade(float(weights[i, j])) for j in columns)
        yield f"  {label:<{wide}}  {cells}  {shown(keys[best].label)[:LABEL]} {weights[i, best]:.0%}"
    if len(queries) > MOST or len(keys) > MOST:
        yield f"  the last {MOST} of {max(len(queries), len(keys))} positions; --html and --json have all"


def lens_lines(seen: Pass) -> Iterator[str]:
    """What each layer would answer at the place of the answer."""
    if seen.readout is None or seen.part().stack is None or seen.readout.number or seen.readout.head == "span":
        return
    place = place_of(seen, None)
    lens = seen.lens(3, place)
    where = f" at {shown(seen.tokens[place].label)}" if seen.readout.each else ""
    yield f"logit lens: what each layer would answer{where}"
    for number, layer in enumerate(lens):
        name = "embeddings" if number == 0 else f"layer {number - 1}"
        told = "  ".join(f"{shown(a.label)[:LABEL]:<{LABEL}} {a.probability:4.0%}" for a in layer[0])
        yield f"  {name:<10}  {told}"


def attribution_lines(found: Attribution) -> Iterator[str]:
    """How much each token speaks for the answer."""
    yield f"{found.method.replace('_', ' ')}: what speaks for {shown(found.answer)} (logit {found.logit:.3g})"
    largest = max(float(np.abs(found.values).max()), 1e-9)
    order = sorted(np.argsort(-np.abs(found.values))[:MOST].tolist())
    wide = max(len(shown(found.tokens[i].label)[:LABEL]) for i in order)
    for i in order:
        value = float(found.values[i])
        bar = ("█" if value > 0 else "░") * round(30 * abs(value) / largest)
        yield f"  {shown(found.tokens[i].label)[:LABEL]:<{wide}}  {value:+8.3f}  {bar}".rstrip()
    if found.method == "integrated":
        yield f"  without any input {found.baseline:.3g}; the values sum to the difference within {found.gap:.2%}"
    if len(found.tokens) > MOST:
        yield f"  the {MOST} largest of {len(found.tokens)}"


def patching_lines(found: Patching) -> Iterator[str]:
    """Which patches move the answer from that of the first input to that of the second."""
    first, second = map(shown, found.answers)
    yield f"patching: 0 is the answer to the first input ({first}), 1 that to the second ({second})"
    labels = [
        shown(a.label)[:5] if a.label == b.label else f"{shown(a.label)[:2]}→{shown(b.label)[:2]}"
        for a, b in zip(*found.tokens, strict=True)
    ]
    yield "  residual stream, layer × position"
    yield from _numbers(found.positions, labels)
    yield "  heads, layer × head"
    yield from _numbers(found.heads, [str(i) for i in range(found.heads.shape[1])])


def _numbers(values: Scores, labels: Sequence[str]) -> Iterator[str]:
    first = max(0, len(labels) - WIDTH // 6)
    yield f"  {'':8}  {' '.join(f'{label:>5}' for label in labels[first:])}"
    for layer, row in enumerate(values[:, first:]):
        cells = [f"{value:5.2f}" if abs(value) >= 0.005 else f"{'·':>5}" for value in row]
        yield f"  layer {layer:>2}  {' '.join(cells)}"


def unit_lines(seen: Pass) -> Iterator[str]:
    """Neurons that stay silent on this input, by layer; channels that stand out, the largest first."""
    found = units(seen)
    silent = [f"layer {each.layer}: {each.silent:,} of {each.neurons:,}" for each in found if each.silent]
    if silent:
        more = f" and {len(silent) - FEW} layers more" if len(silent) > FEW else ""
        yield f"neurons that stay silent on this input: {', '.join(silent[:FEW])}{more}"
    layers: dict[int, list[tuple[float, int]]] = {}
    for each in found:
        for channel, ratio in each.outliers:
            layers.setdefault(channel, []).append((ratio, each.layer))
    if layers:
        yield "channels of the residual stream that stand out"
    for channel, seen_at in sorted(layers.items(), key=lambda each: -max(each[1])[0])[:FEW]:
        ratio, layer = max(seen_at)
        at = f"after {counted(len(seen_at), 'layers')}" if len(seen_at) > 1 else f"after layer {layer}"
        yield f"  channel {channel:>5}  up to {ratio:.0f} times the median (layer {layer}); {at}"


def position_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What positions look like to the model."""
    if found["kind"] == "vectors":
        cosines = np.array(found["cosines"])
        places = np.unique(np.linspace(0, len(cosines) - 1, min(len(cosines), SAMPLED)).round().astype(int))
        yield f"positions: how alike their vectors are, from 0 to {len(cosines) - 1}"
        for row in np.clip(cosines[np.ix_(places, places)], 0, 1):
            yield "  " + "".join(2 * shade(float(value) ** 2) for value in row)
    elif found["kind"] == "rotary":
        lengths = found["wavelengths"]
        yield f"positions: rotary, {len(lengths)} wavelengths from {lengths[0]:.1f} to {lengths[-1]:,.0f} tokens"
    elif found["kind"] == "alibi":
        yield f"positions: a penalty by distance, slopes {', '.join(f'{slope:.3g}' for slope in found['slopes'])}"
    elif found["kind"] == "relative":
        bias, apart = np.array(found["bias"]), found["distances"]
        yield f"positions: a learned bias by distance, {apart[0]} to {apart[-1]} tokens; each row is a head"
        chosen = np.unique(np.linspace(0, len(apart) - 1, 2 * SAMPLED).round().astype(int))
        scaled = (bias - bias.min()) / max(float(np.ptp(bias)), 1e-9)
        for head, row in enumerate(scaled[:, chosen]):
            yield f"  head {head:>2}  {''.join(shade(float(value) ** 2) for value in row)}"


def overview_lines(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a model, from the input to the answer, and what positions look like to it."""
    yield f"{name}: {found['kind']}, {brief(found['parameters'])} parameters"
    for part in found["parts"]:
        yield f"  {part['of']:<8} {part['part']:<6} {brief(part['parameters']):>6}  {part_line(part)}"
    yield from position_lines(found["positions"])


def _positions(part: Mapping[str, Any]) -> str:
    return "" if part.get("positions", "none") == "none" else f", {part['positions']} positions"


def part_line(part: Mapping[str, Any]) -> str:
    """What a part of a model is made of."""
    if part["part"] == "front":
        what = {"tokens": f"{part.get('vocab', 0):,} tokens", "patches": f"{part.get('count')} patches"}
        return f"{what.get(part['reads'], part['reads'])}{_positions(part)}"
    if part["part"] == "stack":
        groups = f" ({part['n_kv_heads']} of keys)" if part["n_kv_heads"] != part["n_heads"] else ""
        size = f"{part['layers']} layers, {part['d_model']} wide, {part['n_heads']} heads{groups} of {part['d_head']}"
        experts = f"{part['experts']} experts" if part["experts"] else f"ffn {part['d_ff']}"
        shared = ", all with the same weights" if part["shared"] else ""
        size += f", {experts} {part['activation']}, {part['norm_at']}-{part['norm']}"
        return f"{size}{_positions(part)}{shared}"
    answers = f"{part['answers']:,} answers" if "answers" in part else ""
    return f"{answers}{', tied' if part.get('tied') else ''}"

"""When each word was said: dynamic time warping over the cross-attention of heads that follow the sound.

Letters: H heads, T tokens, S positions of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.model.model import Model, evaluating
from headway.tasks.transcribe.features import SoundFeatures
from headway.tasks.transcribe.languages import WITHOUT_SPACES
from headway.tasks.transcribe.prompt import SECONDS_PER_TIMESTAMP, SpeechTokens
from headway.tasks.transcribe.timestamps import FRAMES_PER_SECOND, Word
from headway.tasks.transcribe.windows import Recording

MEDIAN = 7
"""Positions whose median smooths attention (Radford et al. 2022)."""
BEFORE, AFTER = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"
"""Punctuation that belongs to the next word, and to the word before."""

Matrix = NDArray[np.float64]
Whole = NDArray[np.int64]


def align_words(
    model: Model,
    tokenizer: Tokenizer,
    speech: SpeechTokens,
    features: SoundFeatures,
    recording: Recording,
    *,
    translate: bool = False,
) -> None:
    """Fill in the words of a recording's segments, window by window."""
    language = recording.language
    begin = speech.begin(language, translate=translate, timestamps=False)
    like = next(model.parameters())
    for seek, group in groupby(recording.segments, key=lambda segment: segment.seek):
        some = list(group)
        tokens = [[token for token in segment.tokens if speech.is_text(token)] for segment in some]
        flat = [token for each in tokens for token in each]
        if not flat:
            continue
        size, step = recording.size(seek, features.window), features.seconds_per_position
        read = features.batch([features.cut(recording.signal, seek, size)], like).inputs
        positions = max(1, int(size / FRAMES_PER_SECOND / step))
        times, chances = token_times(model, read, begin, flat, speech, positions, step)
        at = 0
        for segment, own in zip(some, tokens, strict=True):
            spoken = times[at : at + len(own) + 1] + seek / FRAMES_PER_SECOND
            segment.words = _words(tokenizer, own, spoken, chances[at : at + len(own)], language)
            at += len(own)


def token_times(
    model: Model,
    frames: Tensor,
    begin: Sequence[int],
    tokens: Sequence[int],
    speech: SpeechTokens,
    positions: int,
    step: float = SECONDS_PER_TIMESTAMP,
) -> tuple[Matrix, Matrix]:
    """When each of the tokens begins, and when the last one ends (T+1,), in seconds; and their probabilities (T,).

    There are so many `positions` in the sound, `step` seconds apart.

    A row of attention is that of the position that predicts a token, as in the original program. `transformers` takes
    the position that reads it, which is the prediction of the token after it.
    """
    ids = torch.tensor([[*begin, *tokens]], device=frames.device)
    with evaluating(model):
        maps, hidden = cross_attention(model, frames, ids, speech)
        chances = model.lm(hidden[0, len(begin) - 1 : -1]).float().softmax(-1)
    chosen = chances.gather(1, ids[0, len(begin) :, None])[:, 0]
    path = warp(-smoothed(maps[:, :, :positions])[len(begin) - 1 :])
    return starts(path) * step, chosen.double().cpu().numpy()


def cross_attention(model: Model, frames: Tensor, ids: Tensor, speech: SpeechTokens) -> tuple[Tensor, Tensor]:
    """Weights (H, T, S) of the heads that follow the sound, and hidden states.

    Where nobody knows these heads, they are all heads of the upper half of the decoder.
    """
    stack = model.config.decoder
    assert stack is not None
    upper = [(layer, head) for layer in range(stack.n_layers // 2, stack.n_layers) for head in range(stack.n_heads)]
    wanted = speech.alignment_heads or tuple(upper)
    if wrong := [pair for pair in wanted if not (0 <= pair[0] < stack.n_layers and 0 <= pair[1] < stack.n_heads)]:
        raise DataError(
            "D001", f"alignment_heads name layer {wrong[0][0]}, head {wrong[0][1]}, which the model has not"
        )
    heads = {layer: [head for at, head in wanted if at == layer] for layer, _ in wanted}
    found: dict[int, Tensor] = {}

    def hook(name: str, make: Callable[..., Tensor]) -> None:
        parts = name.split(".")
        if parts[-2:] == ["cross", "weights"] and (layer := int(parts[parts.index("blocks") + 1])) in heads:
            found[layer] = make(heads=heads[layer])[0]

    hidden = model(frames, ids, hook=hook).hidden
    places = {(layer, head): found[layer][at] for layer, own in heads.items() for at, head in enumerate(own)}
    return torch.stack([places[pair] for pair in wanted]).float(), hidden


def smoothed(weights: Tensor) -> Matrix:
    """(T, S): each head's weights (H, T, S) normalised over tokens, smoothed over time; then the mean of heads."""
    deviation, mean = torch.std_mean(weights, dim=1, keepdim=True, correction=0)
    weights = (weights - mean) / deviation
    half = MEDIAN // 2
    if weights.shape[2] > half:
        around = F.pad(weights, (half, half), mode="reflect")
        weights = around.unfold(2, MEDIAN, 1).sort(-1).values[..., half]
    found: Matrix = weights.mean(0).double().cpu().numpy()
    return found


def warp(cost: Matrix) -> tuple[Whole, Whole]:
    """The cheapest way through a matrix (T, S) from corner to corner: rows and columns of its steps.

    All cells of an antidiagonal depend on the two before it alone, so each is computed at once.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    trace = np.zeros((rows + 1, columns + 1), np.int8)
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, row, column = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where((both < row) & (both < column), 0, np.where((row < both) & (row < column), 1, 2))
        total[i, j] = cost[i - 1, j - 1] + np.choose(step, (both, row, column))
        trace[i, j] = step
    trace[0, :], trace[:, 0] = 2, 1
    i_, j_ = rows, columns
    path = []
    while i_ > 0 or j_ > 0:
        path.append((i_ - 1, j_ - 1))
        step_ = trace[i_, j_]
        i_, j_ = i_ - (step_ != 2), j_ - (step_ != 1)
    found = np.array(path[::-1])
    return found[:, 0], found[:, 1]


def starts(path: tuple[Whole, Whole]) -> Matrix:
    """The column at which the way enters each row."""
    rows, columns = path
    enters = np.concatenate([[True], np.diff(rows) > 0])
    found: Matrix = columns[enters].astype(np.float64)
    return found


def _words(tokenizer: Tokenizer, tokens: Sequence[int], times: Matrix, chances: Matrix, language: str) -> list[Word]:
    """Tokens as words. A character of several tokens is complete with the last of them."""
    found: list[tuple[str, int, int]] = []
    for text, begin, end in _pieces(tokenizer, tokens):
        spaced = language not in WITHOUT_SPACES
        glued = bool(found) and spaced and not text[:1].isspace() and not found[-1][0][-1:].isspace()
        if found and (glued or not text.strip() or not found[-1][0].strip()):
            found[-1] = (found[-1][0] + text, found[-1][1], end)
        else:
            found.append((text, begin, end))
    merged = _with_punctuation(found)
    return [
        Word(text.strip(), float(times[begin]), float(times[end]), float(chances[begin:end].mean()))
        for text, begin, end in merged
        if text.strip()
    ]


def _pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[tuple[str, int, int]]:
    """The text that each run of tokens adds; runs end where a character does."""
    found, begin, before = list[tuple[str, int, int]](), 0, ""
    for end in range(1, len(tokens) + 1):
        whole = tokenizer.decode(tokens[:end])
        if whole.endswith("\ufffd") and end < len(tokens):
            continue
        found.append((whole[len(before) :], begin, end))
        begin, before = end, whole
    return found


def _with_punctuation(words: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Punctuation that stands alone joins the word that it belongs to."""
    found: list[tuple[str, int, int]] = []
    for text, begin, end in words:
        if found and (text.strip() in AFTER or found[-1][0].strip() in BEFORE):
            found[-1] = (found[-1][0] + text, found[-1][1], end)
        else:
            found.append((text, begin, end))
    return found

"""A window to tokens: greedy or by beam search first; sampled at higher temperatures where the text looks wrong.

A text looks wrong that repeats itself, so that it compresses well, or that the model itself finds unlikely (Radford et
al. 2022).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from headway.config.generation import Beam, Sampling
from headway.generate.beam.search import beam_search
from headway.generate.decode import decode
from headway.generate.protocol import Source
from headway.generate.sampling.rules import RuleContext, apply_rules
from headway.model.model import Model
from headway.tasks.transcribe.prompt import SpeechTokens, silence
from headway.tasks.transcribe.task import Settings

HOTTEST = 1.0
COOL = 0.5
"""The next window does not read a text that was sampled at this temperature or above."""


@dataclass(frozen=True)
class Decoded:
    """The tokens of a window, without the end token, and how sure the model is of them."""

    tokens: list[int]
    temperature: float
    mean_log_probability: float
    """Of the tokens and the end token, under the rules."""
    compression_ratio: float
    no_speech: float = 0.0
    silent: bool = False
    """Whether nobody speaks: the tokens are then made up."""


def temperatures(settings: Settings) -> list[float]:
    """The temperatures to try, in turn."""
    if not settings.fallback:
        return [settings.temperature]
    steps = math.floor((HOTTEST - settings.temperature) / settings.fallback + 1e-6)
    return [round(settings.temperature + step * settings.fallback, 6) for step in range(max(0, steps) + 1)]


def decode_windows(
    model: Model,
    source: Source,
    prompts: Sequence[list[int]],
    speech: SpeechTokens,
    settings: Settings,
    rules: Any,
    most: Sequence[int],
) -> list[Decoded]:
    """The tokens of windows. `rules` are fields of LogitRules, `most` is how many tokens each window may have."""
    found: list[Decoded | None] = [None] * len(prompts)
    open_, order = [*range(len(prompts))], temperatures(settings)
    for temperature in order:
        begin, limits = [prompts[i] for i in open_], [min(most[i], settings.max_new_tokens or most[i]) for i in open_]
        some = _decoded(model, source.take(open_), begin, speech, settings, rules, limits, temperature)
        again = []
        for place, each in zip(open_, some, strict=True):
            found[place] = each
            if not each.silent and _looks_wrong(each, settings):
                again.append(place)
        open_ = again
        if not open_:
            break
    return [each for each in found if each is not None]


def _looks_wrong(each: Decoded, settings: Settings) -> bool:
    repeats = bool(settings.compression_ratio) and each.compression_ratio > settings.compression_ratio
    return repeats or each.mean_log_probability < settings.log_probability


def _decoded(
    model: Model,
    source: Source,
    prompts: list[list[int]],
    speech: SpeechTokens,
    settings: Settings,
    rules: Any,
    limits: list[int],
    temperature: float,
) -> list[Decoded]:
    """One temperature. Whether anybody speaks is asked only where the text is unlikely."""
    if temperature > 0:
        pairs = _sampled(model, source, prompts, settings, rules, limits, temperature)
    else:
        pairs = _searched(model, source, prompts, settings, rules, limits)
    found = []
    for row, (tokens, mean) in enumerate(pairs):
        ratio = compression_ratio(tokens, model.lm.vocab)
        nobody = 0.0
        if mean < settings.log_probability and settings.no_speech < 1 and speech.no_speech is not None:
            nobody = silence(model, source.take([row]), prompts[row : row + 1], speech)[0]
        text = tokens[:-1] if tokens[-1:] and tokens[-1] in model.config.special.eos_ids else tokens
        silent = nobody > settings.no_speech and mean < settings.log_probability
        found.append(Decoded(text, temperature, mean, ratio, nobody, silent))
    return found


def _searched(
    model: Model, source: Source, prompts: list[list[int]], settings: Settings, rules: Any, limits: list[int]
) -> list[tuple[list[int], float]]:
    """The likeliest tokens. A greedy search gives log-probabilities under the rules; a wider one ranks by others."""
    beam = Beam(
        width=settings.beam,
        length_penalty=settings.length_penalty,
        max_tokens=max(limits),
        min_tokens=settings.min_new_tokens,
        no_repeat=settings.no_repeat_ngram_size,
        renormalise=settings.beam == 1,
        **rules,
    )
    best = [hypotheses[0] for hypotheses in beam_search(model, beam, prompts, source=source, most=limits)]
    return [(one.tokens, one.score * len(one.tokens) ** (settings.length_penalty - 1)) for one in best]


def _sampled(
    model: Model,
    source: Source,
    prompts: list[list[int]],
    settings: Settings,
    rules: Any,
    limits: list[int],
    temperature: float,
) -> list[tuple[list[int], float]]:
    sampling = Sampling(
        temperature=temperature,
        min_tokens=settings.min_new_tokens,
        no_repeat=settings.no_repeat_ngram_size,
        seed=settings.seed,
        **rules,
    )
    tokens: list[list[int]] = [[] for _ in prompts]
    every = [replace(sampling, max_tokens=limit) for limit in limits]
    for piece in decode(model, prompts, every, source=source):
        tokens[piece.row] += [] if piece.token is None else [piece.token]
    means = mean_log_probabilities(model, source, prompts, tokens, sampling)
    return list(zip(tokens, means, strict=True))


@torch.no_grad()
def mean_log_probabilities(
    model: Model, source: Source, prompts: Sequence[list[int]], tokens: Sequence[list[int]], rules: Any
) -> list[float]:
    """The mean log-probability of each row's tokens after its prompt, under the rules, at temperature 1."""
    found, device = [], source.inputs.device
    ends = torch.tensor(model.config.special.eos_ids, device=device)
    for row, (prompt, new) in enumerate(zip(prompts, tokens, strict=True)):
        if not new:
            found.append(0.0)
            continue
        ids, one = torch.tensor([[*prompt, *new]], device=device), source.take([row])
        hidden = model(one.inputs, ids[:, :-1], attention_mask=one.attention_mask).hidden
        logits = model.lm(hidden[0, len(prompt) - 1 :]).float()  # T V
        count = torch.arange(len(new), device=device)
        whole = torch.tensor([*[-1] * len(new), *prompt, *new[:-1]], device=device)
        history = whole.unfold(0, len(prompt) + len(new), 1)[: len(new)]
        limits = torch.full_like(count, 1 << 20)
        place = RuleContext(history, history[:, :0], count, torch.full_like(count, len(prompt)), limits, ends)
        logp = apply_rules(logits, rules, place).log_softmax(-1)
        found.append(float(logp.gather(1, ids[0, len(prompt) :, None]).mean()))
    return found


def compression_ratio(tokens: Sequence[int], vocab: int) -> float:
    """The bytes of the token ids over those that zlib needs for them: `transformers` counts ids, others letters."""
    width = int(math.log2(vocab) / 8) + 1
    whole = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(whole) / len(zlib.compress(whole))

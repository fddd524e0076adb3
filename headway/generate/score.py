"""Log-probabilities of given sequences: a shared beginning is computed once, the rest in one padded batch.

Letters: B batch, T tokens, M width of the model, V vocabulary, N scored tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from headway.data.prompts import start_token
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.engine.slot_cache import common_prefix
from headway.generate.prefix_cache import PrefixCache
from headway.generate.protocol import Decoder, S, Source, device_of

LOGITS_AT_ONCE = 1 << 24
"""Logits (N · V) in memory at one time."""
SHARED = 8
"""Shared tokens from which a beginning is computed once: an extra forward pass takes as long as several tokens."""


@torch.no_grad()
def score(
    model: Decoder[S],
    rows: Sequence[Sequence[int]],
    prompts: Sequence[int],
    *,
    source: Source | None = None,
    prefix: PrefixCache | None = None,
) -> list[Tensor]:
    """Log-probabilities of each row's tokens after the first `prompts` tokens, in float32 on the CPU.

    Rows are padded on the right: later tokens cannot change earlier ones, so no mask is needed. A `prefix` cache saves
    computing what these rows share with earlier ones.
    """
    _check(model, rows, prompts, source)
    if not rows:
        return []
    device, longest = device_of(model), max(len(row) for row in rows)
    ids = torch.tensor([list(row) + [0] * (longest - len(row)) for row in rows], device=device)
    shared = min(longest - 1, *(common_prefix(rows[0], row) for row in rows)) if source is None else 0
    begin = 0
    if shared >= SHARED and (prefix is not None or len(rows) > 1):
        begin = min(shared, *prompts) - 1  # the tokens before are not scored
        prefix = prefix or PrefixCache(model)
        prefix.refresh()
        before = prefix.prefill(rows[0][:shared], shared - begin, longest)
        hidden = model.extend(prefix.rows(len(rows)), ids[:, shared:])
        hidden = torch.cat([before.expand(len(rows), -1, -1), hidden], 1)
    elif source is None:
        hidden = model.extend(model.start(batch=len(rows), capacity=longest), ids)  # B T M
    else:
        hidden = model.extend(model.start(source.inputs, attention_mask=source.attention_mask, capacity=longest), ids)
    place = torch.arange(begin + 1, longest, device=device)
    lengths = torch.tensor([[len(row), prompt] for row, prompt in zip(rows, prompts, strict=True)], device=device)
    counts = (place < lengths[:, :1]) & (place >= lengths[:, 1:])  # B T-1
    found = _log_probabilities(model, hidden[:, :-1][counts], ids[:, begin + 1 :][counts])
    return list(found.cpu().split([len(row) - prompt for row, prompt in zip(rows, prompts, strict=True)]))


@torch.no_grad()
def score_prompt(model: Decoder[S], prompt: Sequence[int], top: int) -> list[tuple[float, list[tuple[int, float]]]]:
    """Of each token after the first: its log-probability, and the `top` most probable tokens with theirs."""
    _check(model, [prompt], [1], None)
    ids = torch.tensor([list(prompt)], device=device_of(model))
    hidden = model.extend(model.start(batch=1, capacity=len(prompt)), ids)[0, :-1]  # T-1 M
    parts = max(1, LOGITS_AT_ONCE // model.lm(hidden[:1]).shape[-1]) if len(hidden) else 1
    found: list[tuple[float, list[tuple[int, float]]]] = []
    for h, targets in zip(hidden.split(parts), ids[0, 1:].split(parts), strict=True) if len(hidden) else ():
        logp = model.lm(h).float().log_softmax(-1)
        best = logp.topk(min(top, logp.shape[-1]))
        own = logp.gather(-1, targets[:, None])[:, 0].tolist()
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        found += [(value, list(zip(*row, strict=True))) for value, row in zip(own, pairs, strict=True)]
    return found


def _log_probabilities(model: Decoder[S], hidden: Tensor, targets: Tensor) -> Tensor:
    """Of N targets, in parts, so that their logits fit into memory."""
    if not len(targets):
        return torch.zeros(0, device=hidden.device)
    vocab = model.lm(hidden[:1]).shape[-1]
    parts = max(1, LOGITS_AT_ONCE // vocab)
    found = [
        model.lm(h).float().log_softmax(-1).gather(-1, t[:, None])[:, 0]
        for h, t in zip(hidden.split(parts), targets.split(parts), strict=True)
    ]
    return torch.cat(found)


def _check(model: Decoder[S], rows: Sequence[Sequence[int]], prompts: Sequence[int], source: Source | None) -> None:
    if len(rows) != len(prompts):
        raise DataError("D001", f"{len(rows)} rows but {len(prompts)} prompt lengths")
    if source is not None and len(rows) != len(source.inputs):
        raise DataError("D001", f"{len(rows)} rows but {len(source.inputs)} inputs for the encoder")
    max_length = model.config.max_length
    for i, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        if not 1 <= prompt <= len(row):
            message = f"row {i} has {len(row)} tokens, {prompt} of them before what is scored"
            raise DataError("D001", message, "the first token of a text has no probability: give it a start token")
        if max_length is not None and len(row) > max_length:
            raise DataError("D001", f"row {i} has {len(row)} tokens, the model reads at most {max_length}")


def perplexity(log_probabilities: Sequence[Tensor]) -> float:
    """exp of the mean negative log-probability over all tokens of all rows."""
    count = sum(len(row) for row in log_probabilities)
    if not count:
        raise DataError("D002", "there are no tokens to take the perplexity of")
    total = math.fsum(value for row in log_probabilities for value in row.tolist())
    try:
        return math.exp(-total / count)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Scored:
    """A text, its log-probability, and how many predicted tokens that covers."""

    text: str
    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return math.exp(min(700.0, -self.log_probability / self.tokens))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "perplexity": self.perplexity}


@dataclass(frozen=True)
class Ranked:
    """A continuation and how likely it is after its context."""

    index: int
    """Its place among the given choices."""
    text: str
    log_probability: float
    tokens: int
    bytes: int

    @property
    def per_token(self) -> float:
        return self.log_probability / self.tokens

    @property
    def per_byte(self) -> float:
        return self.log_probability / self.bytes


By = Literal["log_probability", "per_token", "per_byte"]


def rank_choices(
    model: Decoder[S],
    tokenizer: Tokenizer,
    context: str,
    choices: Sequence[str],
    *,
    by: By = "log_probability",
    prefix: PrefixCache | None = None,
) -> list[Ranked]:
    """Continuations of a context, most probable first. Longer ones have lower sums, hence the means per token and byte.

    All are scored from the last token that they share with the context, since tokens may merge where texts are joined.
    A `prefix` cache saves computing a context that begins like the last one.
    """
    texts = [context, *(context + choice for choice in choices)]
    begin = tokenizer.prefix_ids  # tokens after a text would stand between the context and a choice
    before, *rows = ([*begin, *ids] for ids in tokenizer.ids(texts))
    shared = min((common_prefix(before, row) for row in rows), default=0)
    if not shared:
        rows, shared = [[start_token(model.config.special), *row] for row in rows], 1
    for choice, row in zip(choices, rows, strict=True):
        if len(row) == shared:
            raise DataError("D001", f"the choice {choice[:40]!r} adds no token to the context")
    found = score(model, rows, [shared] * len(rows), prefix=prefix)
    ranked = [
        Ranked(i, choice, float(values.sum()), len(values), len(choice.encode()))
        for i, (choice, values) in enumerate(zip(choices, found, strict=True))
    ]
    return sorted(ranked, key=lambda r: -float(getattr(r, by)))

"""Proofs about text: two texts that a model is to tell apart, and conversations through the model's own template."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from headway.checks.equivalence.decoding import generated, wrong
from headway.checks.equivalence.rows import Row, gap
from headway.checks.equivalence.subject import Subject, pad
from headway.config.model import TokensConfig
from headway.data.chat_template.template import chosen_template, special_strings
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.generate.prefix_cache import Prefix
from headway.generate.sampling.sampler import Sampling
from headway.model.model import Model

SEGMENTS, CHAT = ("segments matter", "chat held = fresh")

TURNS = ("What is two and two?", "And three more?")
REPLY = Sampling(temperature=0.0, stop=(), max_tokens=6)

Read = Callable[..., dict[str, Tensor]]


def segments(model: Model, tokenizer: Tokenizer | None, read: Read, limit: float) -> Row:
    """Other segment ids give another output, in a padded batch as alone; and the tokenizer gives a pair both of them.

    `read` gives the outputs of the model for ids, and for a mask and segment ids where there are any.
    """
    front = model.config.source
    if not isinstance(front, TokensConfig) or front.segments < 2:
        return Row(SEGMENTS, None, note="the model has no segments")
    if tokenizer is not None and not {0, 1} <= set(tokenizer.encode("one text", "another text").segments):
        return Row(SEGMENTS, math.inf, limit, "the tokenizer gives a pair of texts one segment")
    dice = torch.Generator().manual_seed(0)
    ids = [torch.randint(front.vocab, (n,), generator=dice) for n in (9, 5)]
    kinds = [(torch.arange(len(row)) >= len(row) // 2).long() for row in ids]
    alone = [read(row[None], segments=kind[None]) for row, kind in zip(ids, kinds, strict=True)]
    without = read(ids[0][None], segments=torch.zeros_like(kinds[0])[None])
    if gap(alone[0]["hidden"], without["hidden"]) == 0:  # however small, there is a difference where they count
        return Row(SEGMENTS, math.inf, limit, "they do not change the output")
    worst = max(gap(without[name], value) for name, value in read(ids[0][None]).items())
    for left in (False, True):
        inputs, keep = pad(ids, left=left)
        batch = read(inputs, keep=keep, segments=pad(kinds, left=left)[0])
        for i, mine in enumerate(alone):
            for name, value in mine.items():
                found = batch[name][i]
                worst = max(worst, gap(found if found.shape == value.shape[1:] else found[keep[i]], value[0]))
    return Row(SEGMENTS, worst, limit)


def chat(subject: Subject, tokenizer: Tokenizer | None) -> Row:
    """Two turns with the KV cache held between them, and the same prompts read anew."""
    template = None if tokenizer is None else chosen_template(tokenizer.config.get("chat_template"))
    if tokenizer is None or template is None:
        return Row(CHAT, None, note="the model has no chat template")
    if subject.config.encoder is not None:
        return Row(CHAT, None, note="it is for decoders alone")
    held, messages, worst = Prefix(subject.model), [], 0.0
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        text = template.render(messages, tokens=special_strings(tokenizer), add_generation_prompt=True)
        if turn not in text:
            return Row(CHAT, math.inf, subject.limit, "the template leaves out what was said")
        ids = tokenizer.encode(text, special=False).ids
        room = subject.config.max_length
        if room is not None and len(ids) + REPLY.max_tokens > room:
            return Row(CHAT, None, note=f"the model reads at most {room} tokens")
        new = generated(held, [ids], [REPLY])[0]
        worst = max(worst, wrong(subject, ids, new, REPLY))
        messages.append({"role": "assistant", "content": tokenizer.decode(new.tokens)})
    return Row(CHAT, worst, subject.limit, subject.note)

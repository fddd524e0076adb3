"""Checks of text: token type ids of a pair of texts, and conversations through the model's chat template."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from headway.checks.equivalence.decoding import error_of, generated
from headway.checks.equivalence.reference import Reference, pad
from headway.checks.equivalence.result import Outcome, max_difference, skip
from headway.config.model import TokensConfig
from headway.data.chat_template.template import parse_template, special_token_strings
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.generate.prefix_cache import PrefixCache
from headway.generate.sampling.sampler import Sampling
from headway.model.model import Model

TURNS = ("What is two and two?", "And three more?")
REPLY = Sampling(temperature=0.0, stop=(), max_tokens=6)

Read = Callable[..., dict[str, Tensor]]


def segments(model: Model, tokenizer: Tokenizer | None, read: Read, limit: float) -> Outcome:
    """Token type ids change the output, equally alone and in a padded batch; the tokenizer gives a pair both of them.

    `read` returns the model's outputs for ids, with an attention mask and token type ids if given.
    """
    front = model.config.source
    if not isinstance(front, TokensConfig) or front.segments < 2:
        return skip("the model has no token type ids")
    if tokenizer is not None and not {0, 1} <= set(tokenizer.encode("one text", "another text").token_type_ids):
        return Outcome(math.inf, limit, "the tokenizer gives both texts of a pair the same type")
    generator = torch.Generator().manual_seed(0)
    longest = min(9, model.config.max_length or 9)
    if longest < 4:
        return skip(f"the model reads {longest} tokens")
    ids = [torch.randint(front.vocab, (n,), generator=generator) for n in (longest, longest - 2)]
    kinds = [(torch.arange(len(row)) >= len(row) // 2).long() for row in ids]
    alone = [read(row[None], token_type_ids=kind[None]) for row, kind in zip(ids, kinds, strict=True)]
    without = read(ids[0][None], token_type_ids=torch.zeros_like(kinds[0])[None])
    if max_difference(alone[0]["hidden"], without["hidden"]) == 0:  # where types count, they make a difference
        return Outcome(math.inf, limit, "token type ids do not change the output")
    worst = max(max_difference(without[name], value) for name, value in read(ids[0][None]).items())
    for left in (False, True):
        inputs, attention_mask = pad(ids, left=left)
        batch = read(inputs, attention_mask=attention_mask, token_type_ids=pad(kinds, left=left)[0])
        for i, mine in enumerate(alone):
            for name, value in mine.items():
                found = batch[name][i]
                worst = max(
                    worst,
                    max_difference(found if found.shape == value.shape[1:] else found[attention_mask[i]], value[0]),
                )
    return Outcome(worst, limit)


def chat(reference: Reference, tokenizer: Tokenizer | None) -> Outcome:
    """Two turns with the KV cache kept between them, and the same prompts from the first token."""
    template = None if tokenizer is None else parse_template(tokenizer.config.get("chat_template"))
    if tokenizer is None or template is None:
        return skip("the model has no chat template")
    if reference.config.encoder is not None:
        return skip("only without an encoder")
    held, messages, worst = PrefixCache(reference.model), [], 0.0
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        text = template.render(messages, tokens=special_token_strings(tokenizer), add_generation_prompt=True)
        if turn not in text:
            return Outcome(math.inf, reference.limit, "the template leaves out the user's message")
        ids = tokenizer.encode(text, special=False).ids
        room = reference.config.max_length
        if room is not None and len(ids) + REPLY.max_tokens > room:
            return skip(f"the context is only {room} tokens")
        new = generated(held, [ids], [REPLY])[0]
        worst = max(worst, error_of(reference, ids, new, REPLY))
        messages.append({"role": "assistant", "content": tokenizer.decode(new.tokens)})
    return Outcome(worst, reference.limit, reference.note)

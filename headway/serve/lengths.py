"""Texts that are far too long, refused before they are tokenized: that could take seconds, and a lot of memory."""

from __future__ import annotations

from headway.data.tokenizers.tokenizer import Tokenizer

CHARACTERS_PER_TOKEN = 8
"""Characters that a token has at most, on average, in texts of people."""
CHUNK = 4096
"""Characters that are tokenized in any case."""


def far_too_long(tokenizer: Tokenizer, text: str, context_length: int) -> bool:
    """Whether a text has far more tokens than there is room for. One that has only some more is left to be counted."""
    part = max(CHUNK, CHARACTERS_PER_TOKEN * context_length)
    count = 0
    for start in range(0, len(text) if len(text) > part else 0, part):
        count += len(tokenizer.ids([text[start : start + part]])[0])
        if count > 2 * context_length + 64:  # cutting a text into parts may cost some tokens, but not so many
            return True
    return False

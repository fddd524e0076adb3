"""Prompts as token ids: the one place where a text or a conversation becomes the input of generation.

The ids are those of `transformers`: `tokenizer(text)` for a text, `apply_chat_template` with a generation prompt for a
conversation, where the template writes every special token. One difference: a special token that is spelled inside a
message stays ordinary text, so that a message cannot imitate the template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.config.model import SpecialTokens
from headway.data.chat_template.template import ChatTemplate, Message, parse_template, special_token_strings
from headway.data.tokenizers.tokenizer import Tokenizer, backend_errors
from headway.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

PRIVATE_USE = tuple(chr(code) for code in range(0x10FF00, 0x10FFFE))
"""Characters for private use in Unicode. One of them marks special tokens that are spelled inside a message."""

SPOKEN = ("content", "tool_calls", "tool_call_id", "tools")
"""Fields of messages whose strings come from outside, and may spell special tokens."""


def start_token(special: SpecialTokens) -> int:
    """The token that replaces an empty prompt: BOS, or else EOS, which ended the document before."""
    start = special.bos if special.bos is not None else next(iter(special.eos_ids), None)
    if start is None:
        raise DataError("D001", "the prompt is empty, and the model has no BOS token to start from", "give a text")
    return start


class PromptEncoder:
    """Encodes the prompts of one model; `special` are the special token ids of its config."""

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens, name: str = "this model") -> None:
        self.tokenizer, self.special, self.name = tokenizer, special, name

    def text(self, text: str) -> list[int]:
        """Encode a text, with the special tokens that the tokenizer adds."""
        return self.tokenizer.ids([text], special=True)[0] or [start_token(self.special)]

    def chat(
        self,
        messages: Sequence[Message],
        check: Callable[[str], None] | None = None,
        tools: Sequence[Message] | None = None,
    ) -> list[int]:
        """Encode a conversation up to the start of the next answer. `check` may reject the text beforehand.

        `tools` are functions that the answer may call, for templates that take them.
        """
        if self.template is None:
            hint = "headway run without --chat continues a text"
            raise DataError("D008", f"{self.name} has no chat template, so it cannot chat", hint)
        template = self.template if tools is None or self.tool_template is None else self.tool_template
        marked, marker = self._mark_special([*messages, {"tools": tools}], template)
        rows, names = marked[:-1], special_token_strings(self.tokenizer)
        text = template.render(rows, tokens=names, tools=marked[-1]["tools"], add_generation_prompt=True)
        if check is not None:
            check(text)
        ids = self._encode_marked(text, marker) if marker else self.tokenizer.ids([text])[0]
        if not ids:
            raise DataError("D008", "the chat template makes no text of this conversation")
        return ids

    @cached_property
    def template(self) -> ChatTemplate | None:
        return parse_template(self.tokenizer.config.get("chat_template"))

    @cached_property
    def tool_template(self) -> ChatTemplate | None:
        """The template for conversations with tools: some models have one of its own for them."""
        return parse_template(self.tokenizer.config.get("chat_template"), "tool_use")

    def _mark_special(self, messages: Sequence[Message], template: ChatTemplate) -> tuple[list[Message], str]:
        """Insert a marker into each special token that a message spells; returns "" as marker if there is none."""
        spelled = [text for message in messages for name in SPOKEN for text in _strings(message.get(name))]
        if self._special_pattern is None or not any(map(self._special_pattern.search, spelled)):
            return list(messages), ""
        pattern, taken = self._special_pattern, set().union(template.source, *spelled)
        marker = next(char for char in PRIVATE_USE if char not in taken)

        def put(text: str) -> str:
            return pattern.sub(lambda found: _insert_marker(marker, found[0]), text)

        changed = [{name: _map_strings(m[name], put) for name in SPOKEN if name in m} for m in messages]
        return [{**message, **change} for message, change in zip(messages, changed, strict=True)], marker

    def _encode_marked(self, text: str, marker: str) -> list[int]:
        """Encode a text; special tokens with the marker are encoded as ordinary text."""
        names = "|".join(re.escape(_insert_marker(marker, name)) for name in self._special_names)
        ids: list[int] = []
        for i, piece in enumerate(re.split(f"({names})", text)):
            if i % 2:
                with backend_errors("the tokenizer cannot encode this text"):
                    ids += self._plain_backend.encode(piece.replace(marker, ""), add_special_tokens=False).ids
            elif piece:
                ids += self.tokenizer.ids([piece])[0]
        return ids

    @cached_property
    def _special_names(self) -> list[str]:
        """The special tokens, longest first."""
        added = self.tokenizer.backend.get_added_tokens_decoder().values()
        return sorted((token.content for token in added if token.special and token.content), key=len, reverse=True)

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        return re.compile("|".join(map(re.escape, self._special_names))) if self._special_names else None

    @cached_property
    def _plain_backend(self) -> Backend:
        """A copy of the tokenizer that encodes special tokens as ordinary text."""
        from tokenizers import Tokenizer as Backend

        backend = Backend.from_str(self.tokenizer.backend.to_str())
        backend.encode_special_tokens = True
        return backend


def _strings(content: Any) -> Iterator[str]:
    """Yield the strings in a field of a message: a string, a list of parts, or an object with names and values."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple | dict):
        for part in (*content, *content.values()) if isinstance(content, dict) else content:
            yield from _strings(part)


def _map_strings(content: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to each string in a field of a message, and to names inside it."""
    if isinstance(content, str):
        return change(content)
    if isinstance(content, list | tuple):
        return [_map_strings(part, change) for part in content]
    if isinstance(content, dict):
        return {change(key): _map_strings(value, change) for key, value in content.items()}
    return content


def _insert_marker(marker: str, name: str) -> str:
    return name[0] + marker + name[1:]

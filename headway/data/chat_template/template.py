"""Chat templates: render a conversation as the text and the tokens that a model was trained on.

A template is a Jinja program that comes with a model; `client` runs it in a sandboxed process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.data.chat_template.client import MEMORY, send_request
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError
from headway.jsonfile import show

SOURCE_LIMIT = 65_536
"""The most bytes of a template."""
GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
GENERATION_HINT = "put {% generation %} and {% endgeneration %} around answers in the template"
BATCH = 64
"""Conversations that one request renders."""

Message = dict[str, Any]
EncodedChat = tuple[list[int], list[bool]]
"""The ids of a conversation, and its assistant mask."""

END_OF_TURN = "<|end|>"
TURN_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", END_OF_TURN)
"""Special tokens of `TOKEN_TEMPLATE`."""
TOKEN_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "<|assistant|>{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% elif message['role'] in ('system', 'user') %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% else %}{{ raise_exception('no role ' + message['role']) }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The template of a model whose tokenizer was trained on conversations."""
TEXT_TEMPLATE = (
    "{% if bos_token is defined and bos_token != eos_token %}{{ bos_token }}{% endif %}"
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "Assistant:{% generation %}{{ ' ' + message['content'] | trim + eos_token }}{% endgeneration %}{{ '\n' }}"
    "{% elif message['role'] in ('system', 'user') %}"
    "{{ message['role'] | capitalize + ': ' + message['content'] | trim + '\n' }}"
    "{% else %}{{ raise_exception('no role ' + message['role']) }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""The template of a pretrained model without one: plain words, because new tokens would need new embedding rows."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as text."""

    text: str
    spans: list[tuple[int, int]]
    """Characters [start, end) inside {% generation %} blocks."""


class ChatTemplate:
    """The source of a template. Its size is checked here; other errors appear when it is rendered."""

    def __init__(self, source: str) -> None:
        if (size := len(source.encode("utf-8", "surrogatepass"))) > SOURCE_LIMIT:
            raise DataError("D008", f"a chat template of {size:,} bytes; the limit is {SOURCE_LIMIT:,}")
        self.source = source

    def render(
        self,
        messages: Sequence[Message],
        *,
        tokens: Mapping[str, str] | None = None,
        tools: Sequence[Message] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render a conversation. `tokens` are variables of the template such as bos_token."""
        asked = _variables(messages, tokens) | {"tools": tools, "add_generation_prompt": add_generation_prompt}
        return self.render_all([asked])[0].text

    def render_all(self, asked: Sequence[Mapping[str, Any]]) -> list[Rendered]:
        """Render the template once for each set of variables, in one request."""
        answer = send_request(self.source, asked)
        if "error" in answer:
            raise _render_error(answer["error"], answer["message"], answer["line"])
        return [Rendered(render["text"], [(a, b) for a, b in render["spans"]]) for render in answer["renders"]]


def special_token_strings(tokenizer: Tokenizer) -> dict[str, str]:
    """The variables bos_token, eos_token … of templates."""
    names = tokenizer.pieces(list(tokenizer.special.values()))
    return {f"{role}_token": name for role, name in zip(tokenizer.special, names, strict=True)}


def parse_template(value: Any, name: str = "default") -> ChatTemplate | None:
    """Read a `chat_template` entry: one template, or a list of named templates with one called "default".

    A `name` that the list does not have means the default one.
    """
    if value is None or isinstance(value, str):
        return None if value is None else ChatTemplate(value)
    try:
        named = {entry["name"]: entry["template"] for entry in value}
    except (TypeError, KeyError):
        raise ConfigError("C002", "chat_template is neither a text nor a list of named templates") from None
    if not isinstance(named.get("default"), str):
        listed = ", ".join(show(str(name)[:40]) for name in named) or "none"
        raise ConfigError("C003", f'chat_template has no template named "default"; it has {listed}')
    return ChatTemplate(named[name] if isinstance(named.get(name), str) else named["default"])


def ensure_template(tokenizer: Tokenizer) -> tuple[Tokenizer, ChatTemplate]:
    """Return a tokenizer with a chat template: its own, or TEXT_TEMPLATE, which is then saved with it."""
    if (own := parse_template(tokenizer.config.get("chat_template"))) is not None:
        return tokenizer, own
    if "eos" not in tokenizer.special:
        why = "the tokenizer has no chat template and no EOS token, so nothing could end an answer"
        raise ConfigError("C004", why, "start from a model whose tokenizer has one, or train from scratch")
    return Tokenizer(tokenizer.backend, {**tokenizer.config, "chat_template": TEXT_TEMPLATE}), ChatTemplate(
        TEXT_TEMPLATE
    )


def encode_chats(
    tokenizer: Tokenizer, template: ChatTemplate, conversations: Sequence[Sequence[Message]]
) -> list[EncodedChat | DataError]:
    """Return ids and assistant mask of each conversation; an answer includes the token that ends its turn.

    If the template has {% generation %} blocks, they mark the answers. Otherwise an answer is what it adds to the text
    of the conversation before it, which must be a prefix of the whole text. A conversation that cannot be encoded has
    an error in its place. One request renders BATCH conversations.
    """
    groups = (conversations[at : at + BATCH] for at in range(0, len(conversations), BATCH))
    return [found for group in groups for found in _encode_or_halve(tokenizer, template, group)]


def _encode_or_halve(
    tokenizer: Tokenizer, template: ChatTemplate, conversations: Sequence[Sequence[Message]]
) -> list[EncodedChat | DataError]:
    """Encode all at once; if that fails, encode each half, down to the conversation at fault."""
    try:
        return [*_encode(tokenizer, template, conversations)]
    except DataError as error:
        if len(conversations) == 1:
            return [error]
    half = len(conversations) // 2
    halves = conversations[:half], conversations[half:]
    return [found for part in halves for found in _encode_or_halve(tokenizer, template, part)]


def _encode(
    tokenizer: Tokenizer, template: ChatTemplate, conversations: Sequence[Sequence[Message]]
) -> list[EncodedChat]:
    strings, marked = special_token_strings(tokenizer), GENERATION.search(template.source) is not None
    asked: list[dict[str, Any]] = []
    answers: list[list[int]] = []
    for messages in conversations:
        if not messages:
            raise DataError("D007", "a conversation without messages")
        whole = _variables(messages, strings)
        answers.append([] if marked else [i for i, entry in enumerate(messages) if entry.get("role") == "assistant"])
        asked.append(whole)
        for i in answers[-1]:
            asked.append(whole | {"messages": list(messages[:i]), "add_generation_prompt": True})
            asked.append(whole | {"messages": list(messages[: i + 1])})
    renders = iter(template.render_all(asked))
    groups = [(next(renders), [(i, next(renders), next(renders)) for i in places]) for places in answers]
    added = tokenizer.backend.get_added_tokens_decoder()
    found = []
    texts = tokenizer.encode_batch([whole.text for whole, _ in groups], special=False)
    for encoded, (rendered, parts) in zip(texts, groups, strict=True):
        ends = {end for i, (_, end) in zip(encoded.ids, encoded.offsets, strict=True) if i in added}
        spans = rendered.spans + [_answer_span(i, a.text, b.text, rendered.text, ends) for i, a, b in parts]
        mask = [any(start < last and end > first for first, last in spans) for start, end in encoded.offsets]
        found.append((encoded.ids, mask))
    return found


def _answer_span(number: int, before: str, after: str, whole: str, ends: set[int]) -> tuple[int, int]:
    """Return the span of an answer, up to the token that ends its turn, if any, without white space after it."""
    if not after.startswith(before):
        what = "does not start with its prompt"
    elif not whole.startswith(after):
        what = "changes when more messages follow"
    else:
        last = len(before) + len(after[len(before) :].rstrip())
        return len(before), last if last in ends else len(after)
    raise DataError(
        "D008", f"in this chat template the text up to the answer in message {number + 1} {what}", GENERATION_HINT
    )


def _variables(messages: Sequence[Message], tokens: Mapping[str, str] | None) -> dict[str, Any]:
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise DataError("D007", f"message {i + 1} is {show(str(message)[:40])}, not an object with a role")
    named = {"messages": list(messages), "tools": None, "documents": None, "add_generation_prompt": False}
    return {**(tokens or {}), **named}


def _render_error(error: str, message: str, line: int) -> DataError:
    where = f"chat template, line {line}" if line else "chat template"
    what = show(message.strip().partition("\n")[0][:200]) or error
    if error == "Refused":
        return DataError("D008", f"{where}: it refuses this conversation: {what}")
    if error == "MemoryError":
        what = f"more than {MEMORY >> 20} MB of memory"
    return DataError("D008", f"{where}: {what}", "the template has an error, or a message lacks a field that it needs")

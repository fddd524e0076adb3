"""Conversations: parsed from rows, encoded to token ids with an assistant mask, truncated to a length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.config.recipe import DataConfig
from headway.data.batching.permutation import Index
from headway.data.batching.windows import Tokens
from headway.data.chat_template.template import ChatTemplate, EncodedChat, Message, encode_chats
from headway.data.files.columns import MESSAGES, PROMPT, RESPONSE, TOGETHER, Role, named, named_together, quoted
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, read_examples
from headway.data.profile.lengths import quantile_99
from headway.data.synthetic.texts.chat import make_conversations
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError
from headway.jsonfile import show

SYNTHETIC, SYNTHETIC_VALID = 12_000, 400
"""Synthetic conversations if no file is given: for training, and held out."""
MESSAGES_COLUMN = Role("list of messages", "data.text", holds="any")
PROMPT_COLUMN, RESPONSE_COLUMN = Role("prompt", "data.text"), Role("response", "data.pair")
"""The roles of columns that the user names."""
HELD_OUT = 0.1
"""Share of the conversations, the last ones, that are held out if there is no validation file."""


@dataclass(frozen=True)
class Conversation:
    """Messages up to the last answer, and their place in a file."""

    messages: list[Message]
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class EncodedChats:
    """Conversations as token ids; conversation c is ids[starts[c] : starts[c + 1]]."""

    ids: Tokens
    assistant_mask: NDArray[np.bool_]
    """True for the tokens of answers: they count in the loss."""
    starts: Index
    messages: list[list[Message]]
    """The messages of each conversation that were encoded."""
    shortened: int = 0
    """Conversations that lost their first turns because they were too long …"""
    cut: int = 0
    """… those whose last turn alone was too long and lost its end …"""
    left_out: int = 0
    """… and those that were dropped because no token of an answer was left."""
    length_99: int = 0
    """The length that would leave 99 % of the conversations as they are."""

    def __len__(self) -> int:
        return len(self.messages)

    def prompt(self, number: int) -> tuple[str, list[int]]:
        """Return the first question of a conversation, and the ids up to its answer."""
        here = slice(int(self.starts[number]), int(self.starts[number + 1]))
        before = self.ids[here][: int(self.assistant_mask[here].argmax())]
        roles = [message["role"] for message in self.messages[number]]
        asked = self.messages[number][max(0, roles.index("assistant") - 1)]["content"]
        return str(asked), [int(i) for i in before]


def read_conversations(spec: str, bad: BadRows, data: DataConfig | None = None) -> list[Conversation]:
    """Read all conversations of a spec; a row without a conversation is a bad row.

    data.text names the column of messages or, with data.pair, those of prompts and responses; without them a row has
    usual names.
    """
    roles: tuple[Role, ...] = ()
    if data is not None and data.text:
        roles = (PROMPT_COLUMN, RESPONSE_COLUMN) if data.pair else (MESSAGES_COLUMN,)
    elif data is not None and data.pair:
        raise ConfigError("C004", f"data.pair = {data.pair} needs data.text, the column of the prompts")
    return list(read_examples(spec, roles, _parse_row, "conversations", data, bad))


def are_conversations(rows: Sequence[Row]) -> bool:
    """Whether there are rows, and each has a conversation under usual names."""
    return bool(rows) and not any(isinstance(_parse_row(row), Flaw) for row in rows)


def _parse_row(row: Row, *columns: str) -> Conversation | Flaw:
    names = ("messages",) if len(columns) == 1 else ("prompt", "response")
    values = {name: row.values.get(column) for name, column in zip(names, columns, strict=False)} or row.values
    try:
        return Conversation(_up_to_last_answer(read_messages(values)), row.file, row.line)
    except DataError as error:
        return _flaw(row.file, row.line, error)


def train_valid_conversations(
    train: str, valid: str, bad: BadRows, seed: int, data: DataConfig | None = None
) -> tuple[list[Conversation], list[Conversation]]:
    """Conversations for training and validation: from files, with a tenth held out if need be, or synthetic ones."""
    if not train:
        first = [Conversation(messages) for messages in make_conversations(SYNTHETIC, seed)]
        held = make_conversations(SYNTHETIC_VALID, seed + 1, held_out=True)
        return first, read_conversations(valid, BadRows(bad.policy), data) if valid else [Conversation(m) for m in held]
    found = read_conversations(train, bad, data)
    if valid:
        return found, read_conversations(valid, BadRows(bad.policy), data)
    if len(found) < 2:
        raise DataError("D002", f"{show(train)}: one conversation, so none can be held out", "set data.valid")
    place = min(len(found) - 1, max(1, round(len(found) * (1 - HELD_OUT))))
    return found[:place], found[place:]


def _up_to_last_answer(messages: list[Message]) -> list[Message]:
    """Drop messages after the last answer: they add nothing to the loss."""
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not answers:
        raise DataError("D007", "no answer: no message has the role assistant")
    for i in answers:
        if set(messages[i]) == {"role", "content"} and not _has_content(messages[i]["content"]):
            raise DataError("D007", f"message {i + 1}: the answer is empty")
    return messages[: answers[-1] + 1]


def _has_content(content: Any) -> bool:
    return bool(content.strip() if isinstance(content, str) else content)


def _flaw(file: str, line: int, error: DataError) -> Flaw:
    hint = f" ({error.hint})" if error.hint else ""
    return Flaw(file, line, error.message + hint, code=error.code)


def encode_conversations(
    conversations: Sequence[Conversation],
    tokenizer: Tokenizer,
    template: ChatTemplate,
    bad: BadRows,
    length: int | None = None,
) -> EncodedChats:
    """Encode conversations. One that the template refuses is a bad row; one longer than `length` is shortened.

    The first turns are dropped first, and the system message stays: later turns need more context. A single turn that
    is still too long is truncated at its end if some of the answer is left, and dropped otherwise.
    """
    messages = [list(one.messages) for one in conversations]
    encoded: list[EncodedChat] = []
    kept: list[int] = []
    for i, found in enumerate(encode_chats(tokenizer, template, messages)):
        if isinstance(found, DataError):
            bad.add(_flaw(conversations[i].file, conversations[i].line, found))
        else:
            kept.append(i)
            encoded.append(found)
    messages = [messages[i] for i in kept]
    length_99 = quantile_99([len(ids) for ids, _ in encoded]) if encoded else 0
    shortened = _shorten(messages, encoded, tokenizer, template, length)
    cut = {i for i, (ids, _) in enumerate(encoded) if length is not None and len(ids) > length}
    fitting = [(ids[:length], mask[:length]) for ids, mask in encoded]
    good = [i for i, (_, mask) in enumerate(fitting) if any(mask)]
    return _concatenate(
        [fitting[i] for i in good],
        [messages[i] for i in good],
        shortened=len(shortened.intersection(good)),
        cut=len(cut.intersection(good)),
        left_out=len(fitting) - len(good),
        length_99=length_99,
    )


def _shorten(
    messages: list[list[Message]],
    encoded: list[EncodedChat],
    tokenizer: Tokenizer,
    template: ChatTemplate,
    length: int | None,
) -> set[int]:
    """Drop first turns of long conversations, one turn of each per round, until they fit; returns their numbers."""
    shortened: set[int] = set()
    if length is None:
        return shortened
    left = {
        i: later
        for i, (ids, _) in enumerate(encoded)
        if len(ids) > length and (later := _without_first_turn(messages[i]))
    }
    while left:
        for i, found in zip(left, encode_chats(tokenizer, template, list(left.values())), strict=True):
            if not isinstance(found, DataError):  # otherwise the template needs that turn: truncate
                messages[i], encoded[i] = left[i], found
                shortened.add(i)
        again = (i for i in left if messages[i] is left[i] and len(encoded[i][0]) > length)
        left = {i: later for i in again if (later := _without_first_turn(messages[i]))}
    return shortened


def _without_first_turn(messages: list[Message]) -> list[Message]:
    """Drop the first turn and keep the system message; empty if there is no second question."""
    roles = [message["role"] for message in messages]
    begin = next((i for i, role in enumerate(roles) if role != "system"), len(roles))
    questions = [i for i in range(begin + 1, len(roles)) if roles[i] == "user"]
    return messages[:begin] + messages[questions[0] :] if questions else []


def _concatenate(encoded: list[EncodedChat], messages: list[list[Message]], **counts: int) -> EncodedChats:
    starts = np.cumsum([0, *(len(ids) for ids, _ in encoded)])
    ids = np.fromiter(chain.from_iterable(ids for ids, _ in encoded), dtype=np.int64)
    answer = np.fromiter(chain.from_iterable(mask for _, mask in encoded), dtype=np.bool_)
    return EncodedChats(ids, answer, starts, messages, **counts)


def message_texts(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Yield the text of all messages, to train a tokenizer on."""
    return (m["content"] for one in conversations for m in one.messages if isinstance(m["content"], str))


ROLES = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
    "system": "system",
}
"""Names of speakers in files → the roles of chat templates."""


def read_messages(row: Mapping[str, Any]) -> list[Message]:
    """Read the conversation in a row: `messages`, ShareGPT's `conversations`, Alpaca's, or a prompt and a response."""
    if field := named([row], MESSAGES):
        return _parse_messages(row[field], field)
    if pair := named_together(row, (PROMPT, RESPONSE)):
        asked, answer = (_text(row, field) for field in pair)
        if pair[0] == "instruction" and row.get("input"):  # Alpaca's format
            asked += "\n\n" + _text(row, "input")
        system = [{"role": "system", "content": _text(row, "system")}] if row.get("system") else []
        return [*system, {"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    known = ", ".join([*MESSAGES.names, *map(" + ".join, TOGETHER[PROMPT, RESPONSE])])
    raise DataError("D004", f"no conversation in a row with {quoted(list(row)) or 'no fields'}", f"known: {known}")


def _parse_messages(value: Any, field: str) -> list[Message]:
    if not isinstance(value, list | tuple) or not value:
        raise DataError("D007", f"{field} is {show(str(value)[:40])}, not a list of messages")
    return [_parse_message(entry, f"{field}, message {i + 1}") for i, entry in enumerate(value)]


def _parse_message(entry: Any, where: str) -> Message:
    """Read a message and convert its role; other fields (tool calls, …) are kept."""
    if not isinstance(entry, Mapping):
        raise DataError("D007", f"{where} is {show(str(entry)[:40])}, not an object with a role and content")
    short = "from" in entry and "role" not in entry
    names = ("from", "value") if short else ("role", "content")
    speaker, content = (entry.get(name) for name in names)
    if not isinstance(speaker, str) or (short and speaker not in ROLES):
        hint = f"known: {', '.join(ROLES)}" if short else ""
        raise DataError("D007", f"{where}: {names[0]} is {show(str(speaker)[:40])}", hint)
    if not isinstance(content, str | list | tuple) and not (content is None and len(entry) > 1):
        raise DataError("D007", f"{where}: {names[1]} is {show(str(content)[:40])}, not text")
    others = {key: value for key, value in entry.items() if key not in names}
    return {"role": ROLES[speaker] if short else speaker, "content": content, **others}


def _text(row: Mapping[str, Any], field: str) -> str:
    if not isinstance(row[field], str):
        raise DataError("D007", f"{field} is {show(str(row[field])[:40])}, not text")
    return str(row[field])

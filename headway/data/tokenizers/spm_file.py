"""The file of a sentencepiece model, read without that package: a protobuf message, of which a few fields count.

Nothing in it is trusted: lengths are checked before anything is read, and what is left out has the value that
sentencepiece takes for it. Models of kinds whose rules headway cannot follow to the letter are refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.data.tokenizers.bounds import MAX_GROWTH, check_names
from headway.data.tokenizers.charsmap import charsmap_growth
from headway.errors import DamagedError, NotFoundError
from headway.jsonfile import AGAIN, show, unreadable

MAX_BYTES, MAX_PIECES, MAX_FIELDS = 100_000_000, 1_000_000, 10_000
"""Bytes of a file, its pieces, and its settings: the largest published vocabularies have 900 thousand pieces."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Kinds of pieces."""
UNIGRAM, BPE = 1, 2
KINDS = {3: "words", 4: "characters"}
"""Kinds of models that are refused."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""How a field is written."""
Field = tuple[int, int | bytes]


@dataclass(frozen=True, kw_only=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True, kw_only=True)
class SpmModel:
    """What a model file says; the id of a piece is its place."""

    path: Path
    pieces: tuple[Piece, ...]
    model: int
    byte_fallback: bool
    roles: Mapping[str, str]
    """Role → piece, for those of unk, bos, eos, pad that the model has."""
    charsmap: bytes
    """How a text is spelled anew, see `headway.data.tokenizers.charsmap`; empty: as it is."""
    dummy_prefix: bool
    """Whether a text begins with a space that it has not."""
    single_spaces: bool
    """Whether spaces around a text are dropped, and several become one."""

    @property
    def unk(self) -> str:
        return self.roles["unk"]

    def of_kind(self, *kinds: int) -> list[str]:
        return [piece.text for piece in self.pieces if piece.kind in kinds]


def read_spm(path: Path) -> SpmModel:
    """The model in a file, or an error that says what is wrong with it."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        if len(raw) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        return _parse_model(path, raw)
    except ValueError as error:
        raise DamagedError("X001", f"{show(path)} is no sentencepiece model: {error}", AGAIN) from None


def _parse_model(path: Path, raw: bytes) -> SpmModel:
    parts: list[bytes] = []
    specs: dict[int, list[bytes]] = {2: [], 3: [], 5: []}  # of the trainer, of the normalizer, and of what undoes that
    for number, value in _fields(raw, MAX_PIECES + MAX_FIELDS):
        if number == 1:
            parts.append(_bytes(value, "a piece"))
        elif number in specs:
            specs[number].append(_bytes(value, "a list of settings"))  # parts of a message count as one
    if len(parts) > MAX_PIECES:
        raise ValueError(f"it has {len(parts):,} pieces; the limit is {MAX_PIECES:,}")
    pieces = [_parse_piece(part, place) for place, part in enumerate(parts)]
    trainer, normalizer, back = (dict(_fields(b"".join(spec), MAX_FIELDS)) for spec in specs.values())
    _check_pieces(pieces)
    found = SpmModel(
        path=path,
        pieces=tuple(pieces),
        model=_number(trainer, 3, UNIGRAM),
        byte_fallback=_number(trainer, 35, 0) != 0,
        roles=_roles(pieces, trainer),
        charsmap=_bytes(normalizer.get(2, b""), "the table of characters"),
        dummy_prefix=_number(normalizer, 3, 1) != 0,
        single_spaces=_number(normalizer, 4, 1) != 0,
    )
    if charsmap_growth(found.charsmap) > MAX_GROWTH:
        raise ValueError(f"its table of characters makes more than {MAX_GROWTH} times as much of a text")
    others = {
        "spaces that end a word": _number(trainer, 24, 0) != 0,
        "spaces that stay as they are": _number(normalizer, 5, 1) == 0,
        "rules for spelling what was written": back.get(2, b"") != b"",
        f"a model of {KINDS.get(found.model, 'another kind')}": found.model not in (UNIGRAM, BPE),
        "merges, and pieces that are never or always taken": found.model == BPE
        and bool(found.of_kind(USER_DEFINED, UNUSED)),
    }
    if any(others.values()):
        raise unsupported_rule(path, next(what for what, is_so in others.items() if is_so))
    return found


def unsupported_rule(path: Path, what: str) -> NotFoundError:
    message = f"{show(path)} has {what}, a rule of sentencepiece's that headway does not know"
    return NotFoundError("F005", message, "a tokenizer.json beside it would be read in its place")


def _parse_piece(raw: bytes, place: int) -> Piece:
    fields = dict(_fields(raw, MAX_FIELDS))
    text = _bytes(fields.get(1, b""), f"piece {place}").decode()
    score = fields.get(2, bytes(4))
    if not isinstance(score, bytes) or len(score) != 4 or not math.isfinite(number := struct.unpack("<f", score)[0]):
        raise ValueError(f"the score of piece {place} is no number")
    kind = _number(fields, 3, NORMAL)
    if not text or not NORMAL <= kind <= BYTE:
        raise ValueError(f"piece {place} has {f'kind {kind}' if text else 'no text'}")
    return Piece(text=text, score=number, kind=kind)


def _check_pieces(pieces: list[Piece]) -> None:
    if not pieces:
        raise ValueError("it has no pieces")
    check_names([piece.text for piece in pieces], len(pieces))
    if len({piece.text for piece in pieces}) < len(pieces):
        raise ValueError(f"it has the same piece twice among its {len(pieces):,}")
    if (unknown := sum(piece.kind == UNKNOWN for piece in pieces)) != 1:
        raise ValueError(f"it has {unknown} pieces for what is unknown, not one")


def _roles(pieces: list[Piece], trainer: Mapping[int, int | bytes]) -> dict[str, str]:
    roles = {"unk": next(piece.text for piece in pieces if piece.kind == UNKNOWN)}
    for role, number, usual in (("bos", 41, 1), ("eos", 42, 2), ("pad", 43, -1)):
        place = _number(trainer, number, usual)
        if 0 <= place < len(pieces) and pieces[place].kind == CONTROL:
            roles[role] = pieces[place].text
    return roles


def _number(fields: Mapping[int, int | bytes], number: int, usual: int) -> int:
    value = fields.get(number, usual)
    if isinstance(value, bytes):
        raise ValueError(f"setting {number} is no whole number")
    return value  # -1 as 2**64 - 1, which is no place either


def _bytes(value: int | bytes, what: str) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"{what} is a number")
    return value


def _fields(raw: bytes, most: int) -> Iterator[Field]:
    """The fields of a message: whole numbers as such, all else as the bytes it takes."""
    at = count = 0
    while at < len(raw):
        if (count := count + 1) > most:
            raise ValueError(f"it has more than {most:,} fields")
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(raw, at)
            yield number, value
            continue
        if wire == BYTES:
            size, at = _varint(raw, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"a field of type {wire}, which there is not, before byte {at:,}")
        if at + size > len(raw):
            raise ValueError(f"it ends within a field of {size:,} bytes")
        yield number, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A whole number, seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(raw):
            raise ValueError("it ends within a number")
        if shift > 63:
            raise ValueError(f"a number without end, at byte {at:,}")
        byte = raw[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & (2**64 - 1), at

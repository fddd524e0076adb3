"""Parser of sentencepiece model files: the few fields of a protobuf message that matter here.

Why not the sentencepiece package: it would replace only the 60 lines that parse protobuf, a tenth of the four spm
modules, and would need protobuf too; bounds, normalization and conversion to `tokenizers` remain. The file is not
trusted: sizes are checked first, missing fields have sentencepiece's defaults, and unsupported rules are refused.
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
"""The most bytes, pieces and fields of a file; the largest published vocabularies have 900 thousand pieces."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of pieces."""
UNIGRAM, BPE = 1, 2
KINDS = {3: "words", 4: "characters"}
"""Types of models that are refused."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""
Field = tuple[int, int | bytes]


@dataclass(frozen=True, kw_only=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True, kw_only=True)
class SpmModel:
    """The content of a model file; the id of a piece is its position."""

    path: Path
    pieces: tuple[Piece, ...]
    model: int
    byte_fallback: bool
    roles: Mapping[str, str]
    """Role → piece, for those roles of unk, bos, eos, pad that the model has."""
    charsmap: bytes
    """The normalization table, see `charsmap`; empty: no normalization."""
    dummy_prefix: bool
    """Whether a space is inserted before a text."""
    single_spaces: bool
    """Whether spaces around a text are removed, and repeated ones become one."""

    @property
    def unk(self) -> str:
        return self.roles["unk"]

    def of_kind(self, *kinds: int) -> list[str]:
        return [piece.text for piece in self.pieces if piece.kind in kinds]


def read_spm(path: Path) -> SpmModel:
    """Read a model file."""
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
    specs: dict[int, list[bytes]] = {2: [], 3: [], 5: []}  # trainer, normalizer and denormalizer
    for number, value in _fields(raw, MAX_PIECES + MAX_FIELDS):
        if number == 1:
            parts.append(_bytes(value, "a piece"))
        elif number in specs:
            specs[number].append(_bytes(value, "a list of settings"))  # repeated parts of a message are concatenated
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
        charsmap=_bytes(normalizer.get(2, b""), "the normalization table"),
        dummy_prefix=_number(normalizer, 3, 1) != 0,
        single_spaces=_number(normalizer, 4, 1) != 0,
    )
    if charsmap_growth(found.charsmap) > MAX_GROWTH:
        raise ValueError(f"its normalization table may make a text more than {MAX_GROWTH} times as long")
    others = {
        "spaces as suffixes of words": _number(trainer, 24, 0) != 0,
        "unescaped spaces": _number(normalizer, 5, 1) == 0,
        "a denormalizer": back.get(2, b"") != b"",
        f"a model of {KINDS.get(found.model, 'another kind')}": found.model not in (UNIGRAM, BPE),
        "BPE with user-defined or unused pieces": found.model == BPE and bool(found.of_kind(USER_DEFINED, UNUSED)),
    }
    if any(others.values()):
        raise unsupported_rule(path, next(what for what, is_so in others.items() if is_so))
    return found


def unsupported_rule(path: Path, what: str) -> NotFoundError:
    message = f"{show(path)} has {what}, which headway does not support"
    return NotFoundError("F005", message, "add a tokenizer.json to the folder: headway reads it first")


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
        raise ValueError(f"it has {unknown} unknown tokens, not one")


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
        raise ValueError(f"field {number} is not an integer")
    return value  # -1 appears as 2**64 - 1, which is not a position either


def _bytes(value: int | bytes, what: str) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"{what} is a number")
    return value


def _fields(raw: bytes, most: int) -> Iterator[Field]:
    """Yield the fields of a message: varints as integers, all others as bytes."""
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
            raise ValueError(f"a field of unknown type {wire} before byte {at:,}")
        if at + size > len(raw):
            raise ValueError(f"it ends within a field of {size:,} bytes")
        yield number, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a varint (seven bits per byte) and its end."""
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

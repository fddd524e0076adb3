"""Data files as bytes, lines or JSON values, with checks of size, encoding and gzip bombs."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import re
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from headway.config.recipe import UTF_8
from headway.data.files.locate import file_format
from headway.errors import DataError
from headway.jsonfile import JSON_VALUES, show, unreadable

ROW_LIMIT = 64_000_000
"""Bytes of one row. A longer row usually means an unclosed quote, or a file without line breaks."""
GZIP_FREE, GZIP_RATIO = 64_000_000, 200
"""A gzip file may unpack to GZIP_FREE bytes or GZIP_RATIO times its size, whichever is more. Text shrinks to a tenth,
the most repetitive logs to a hundredth, and only bombs to a thousandth, which is gzip's own limit."""
LINE_COST = 64
"""Bytes that Python needs for a line besides its characters: many short lines take more memory than a long one."""
MAGIC = {
    b"\x1f\x8b": ("gzip", "let its name end in .gz"),
    b"PAR1\x15": ("parquet", "let its name end in .parquet"),
    b"PK\x03\x04": ("a zip archive", "unpack it first"),
    b"%PDF-": ("PDF", "extract its text first: pdftotext FILE.pdf FILE.txt"),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("an old Office document", "save it as .txt, .csv or .xlsx first"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unpack it first: unzstd FILE"),
    b"BZh91AY&SY": ("bzip2", "unpack it first: bunzip2 FILE"),
    b"\xfd7zXZ\0": ("xz", "unpack it first: unxz FILE"),
}
"""First bytes that no text file has → the format, and what the user can do."""
BLOCK = 1 << 20
"""Bytes of a text file read at a time; fewer than ROW_LIMIT."""
CHUNK = 1 << 16
"""The least bytes of JSON read at a time."""


MARKS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Byte order mark → encoding, whatever the setting says."""
_encoding: ContextVar[str] = ContextVar("encoding", default=UTF_8)


@contextmanager
def read_as(encoding: str) -> Iterator[None]:
    """Inside the block, files without a byte order mark are read in this encoding (data.encoding)."""
    token = _encoding.set(encoding)
    try:
        yield
    finally:
        _encoding.reset(token)


class BadLine(Exception):
    """A line that cannot be read as text. Reading can continue with the next line."""

    def __init__(self, reason: str, code: str = "D007") -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class LongLine(BadLine):
    """A line of a text file that is longer than ROW_LIMIT."""

    def __init__(self, number: int) -> None:
        super().__init__(f"longer than {ROW_LIMIT:,} bytes; split it into lines, for example with fold -s")
        self.number = number


def read_lines(file: BinaryIO) -> bytearray:
    """Read a text file. A line longer than ROW_LIMIT raises an error before more of it is in memory."""
    whole, line, number = bytearray(), 0, 1
    while block := file.read(BLOCK):
        first, last = block.find(b"\n"), block.rfind(b"\n")
        if line + (first if last >= 0 else len(block)) > ROW_LIMIT:
            raise LongLine(number)
        line = len(block) - last - 1 if last >= 0 else line + len(block)
        number += block.count(b"\n")
        whole += block
    return whole


class _Gunzip(io.RawIOBase):
    """The unpacked bytes of a gzip file; damage and gzip bombs become errors that name the file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.total = path, 0
        self.size = os.fstat(file.fileno()).st_size
        self.inner = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.inner.read(len(buffer))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise damaged(self.path, f"gzip breaks off after {self.total:,} unpacked bytes: {error}") from None
        self.total += len(data)
        if self.total > max(GZIP_FREE, GZIP_RATIO * self.size):
            raise DataError(
                "D006",
                f"{show(self.path)}: {self.size:,} bytes unpack to more than {self.total:,}",
                "this looks like a gzip bomb; if it is not, unpack it yourself: gunzip FILE",
            )
        buffer[: len(data)] = data
        return len(data)


def damaged(path: Path, reason: str) -> DataError:
    return DataError("D006", f"{show(path)} is damaged: {reason[:150]}", "download or copy it again")


@contextmanager
def open_bytes(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file as bytes, unpacked if its name ends in .gz (such a file cannot seek)."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from None
    with file:
        yield io.BufferedReader(_Gunzip(path, file), 1 << 16) if file_format(path)[1] else file


class _Recoded(io.RawIOBase):
    """The text of a file in another encoding, as UTF-8. Bytes that the encoding does not have stay as they are, which
    is no UTF-8: whoever reads the line finds them."""

    def __init__(self, file: BinaryIO, encoding: str, name: str) -> None:
        self.file, self.encoding, self.name = file, encoding, name
        self.decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self.waiting, self.line = b"", 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.waiting:
            raw = self.file.read(CHUNK)
            try:
                text = self.decoder.decode(raw, final=not raw)
            except UnicodeError as error:
                where = f"{show(self.name)} after line {self.line:,}"
                reason = str(error).split(":")[-1].strip()
                raise DataError("D003", f"{where}: not {self.encoding}: {reason}", ENCODING_HINT) from None
            self.waiting = text.encode("utf-8", "surrogateescape")
            self.line += text.count("\n")
            if not raw:
                break
        size = min(len(buffer), len(self.waiting))
        buffer[:size], self.waiting = self.waiting[:size], self.waiting[size:]
        return size


ENCODING_HINT = "data.encoding=NAME sets the encoding of the files, such as cp1252, latin-1 or utf-16-le"


def recoded(file: BinaryIO, name: str, encoding: str = "") -> BinaryIO:
    """A file as UTF-8: from the given encoding, or from that of `read_as`."""
    encoding = encoding or _encoding.get()
    return file if codecs.lookup(encoding).name == UTF_8 else io.BufferedReader(_Recoded(file, encoding, name), CHUNK)


@contextmanager
def open_text(path: Path) -> Iterator[io.BufferedReader]:
    """Open a text file as bytes of UTF-8, after its byte order mark; the first bytes must not show another format."""
    with open_bytes(path) as file:
        head = file.peek(4096)[:4096]
        for magic, (kind, remedy) in MAGIC.items():
            if head.startswith(magic):
                raise DataError("D003", f"{show(path)} is not text but {kind}", remedy)
        marked = next((name for mark, name in MARKS.items() if head.startswith(mark)), "")
        if head.startswith(codecs.BOM_UTF8):
            file.read(3)
            marked = UTF_8
        if not marked and not _recoding():
            _check_bytes(path, head)
        yield recoded(file, str(path), marked)  # type: ignore[misc]


def _check_bytes(path: Path, head: bytes) -> None:
    """Refuse what is neither UTF-8 nor another encoding with one byte for an ASCII letter."""
    zeros = head[0::2].count(0), head[1::2].count(0)
    if min(zeros) == 0 and max(zeros) > len(head) / 4:  # zeros in every other byte, as in Western text
        found = "utf-16-be" if zeros[0] else "utf-16-le"
        message = f"{show(path)} line 1, byte 1: {found.upper()} text, not UTF-8"
        raise DataError("D003", message, f"add data.encoding={found}")
    if file_format(path)[0] == "text" and head.count(0) > max(8, len(head) / 100):
        raise DataError(
            "D003", f"{show(path)} is not text: it has NUL bytes", "name the data files, or remove this one"
        )


def guess_encoding(raw: bytes | bytearray) -> str:
    """The likely encoding of a line that is not UTF-8."""
    high = [byte for byte in raw if byte > 127]
    if len(high) > 4 and 2 * sum(byte >= 0xE0 for byte in high) > len(high) > sum(bytes([b]).isalpha() for b in raw):
        return "cp1251"  # whole words beyond ASCII, most letters where Cyrillic has its small ones
    return "latin-1" if set(high) & {0x81, 0x8D, 0x8F, 0x90, 0x9D} else "cp1252"


def decode(raw: bytes | bytearray) -> str:
    """Decode UTF-8; invalid bytes and NUL raise BadLine."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        place = len(raw[: error.start].decode()) if _recoding() else error.start
        raise _undecodable(raw, error.start, f"byte {place + 1:,} of the line") from None
    if "\0" in text:
        raise BadLine("a NUL byte, which no text has")
    return text


def _recoding() -> bool:
    return codecs.lookup(_encoding.get()).name != UTF_8


def _undecodable(raw: bytes | bytearray, start: int, what: str) -> BadLine:
    """Text with a byte that the encoding does not have."""
    said = f"{what} is 0x{raw[start]:02x}"
    if _recoding():
        return BadLine(f"not {_encoding.get()}: {said}", "D003")
    guess = guess_encoding(raw)
    letter = bytes([raw[start]]).decode(guess, "replace")
    return BadLine(f"not UTF-8: {said}, which is {letter!r} with data.encoding={guess}", "D003")


class Lines:
    """The lines of a file as text, with their line ends, numbered from 1; `next` raises BadLine for an invalid line."""

    def __init__(self, file: BinaryIO, number: int = 0) -> None:
        self.file, self.number = file, number
        self._again: deque[str] = deque()

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        if self._again:
            self.number += 1
            return self._again.popleft()
        raw = self.file.readline(ROW_LIMIT + 1)
        if not raw:
            raise StopIteration
        self.number += 1
        if len(raw) > ROW_LIMIT:
            while raw and not raw.endswith(b"\n"):
                raw = self.file.readline(ROW_LIMIT)
            raise BadLine(f"longer than {ROW_LIMIT:,} bytes")
        return decode(raw)

    def push_back(self, lines: list[str]) -> None:
        """Return the lines read last, in order, so that they are read again."""
        self._again.extendleft(reversed(lines))
        self.number -= len(lines)


class JsonText:
    """The text of a JSON file, read as far as needed; the part that was parsed is dropped."""

    blank = re.compile(r"[ \t\r\n]*")
    scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).raw_decode  # only finds ends

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.decoder = file, codecs.getincrementaldecoder("utf-8")()
        self.text, self.at, self.line, self.done = "", 0, 1, False
        self.broken: BadLine | None = None

    def more(self) -> bool:
        """Double the text at hand; false at the end of the file."""
        if self.broken:
            self.line += self.text.count("\n", self.at)
            raise self.broken
        if self.done:
            return False
        self.text, self.at = self.text[self.at :], 0
        raw = self.file.read(max(CHUNK, len(self.text)))
        try:
            self.text += self.decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:  # the text before the invalid byte is still used
            self.text += error.object[: error.start].decode()
            self.broken = _undecodable(error.object, error.start, "a byte")
        self.done = not raw
        return True

    def char(self) -> str:
        """Return the next character that is not blank, without consuming it; "" at the end."""
        while True:
            end = self.blank.match(self.text, self.at).end()  # type: ignore[union-attr]  # it also matches nothing
            self.line += self.text.count("\n", self.at, end)
            self.at = end
            if end < len(self.text) or not self.more():
                return self.text[end : end + 1]

    def value(self) -> tuple[int, str]:
        """Return the line where the next JSON value starts, and its text."""
        self.char()
        while True:
            if sum(self.text.count(mark, self.at) for mark in ",[{") > 2 * JSON_VALUES:  # half of it may be unparsed
                raise BadLine(f"an object of more than {JSON_VALUES:,} values")
            try:
                _, end = self.scan(self.text, self.at)
                if not self.text[end - 1].isdecimal() or end + 2 < len(self.text) or not self.more():
                    break  # otherwise the number may continue after the text at hand, for example with e-5
            except RecursionError:
                raise BadLine("JSON nested too deeply") from None
            except json.JSONDecodeError as error:
                if len(self.text) - self.at > ROW_LIMIT:
                    raise BadLine(f"an object of more than {ROW_LIMIT:,} characters") from None
                if not self.more():
                    self.line += self.text.count("\n", self.at, error.pos)
                    raise BadLine(f"not valid JSON: {error.msg}") from None
        value, line = self.text[self.at : end], self.line
        self.at, self.line = end, line + value.count("\n")
        return line, value

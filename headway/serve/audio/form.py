"""A form with files (multipart/form-data, RFC 7578), parsed with bounds. Its body is in memory already."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headway.serve.errors import ApiError

FORM_TYPE = re.compile(
    r"""multipart/form-data *;.*?\bboundary=(?:"([^"\r\n]{1,70})"|([\w'()+,./:=?-]{1,70}))(?= *(?:;|$))""",
    re.IGNORECASE,
)
MOST_PARTS = 64
"""Fields of a form, each value of a list counted."""
MOST_HEADER = 4096
"""Bytes of a part's headers."""
_NAME = re.compile(r'\bname="((?:[^"\\\r\n]|\\.)*)"')
_FILE = re.compile(r"\bfilename\*?=")


@dataclass(frozen=True)
class Form:
    """What a client has filled in."""

    fields: dict[str, list[str]]
    """Names → values; the [] of a list's name is left out."""
    files: dict[str, bytes]


def parse_form(content_type: str, body: bytes) -> Form:
    """The fields and files of a body. An `ApiError` says what is wrong with it."""
    found = FORM_TYPE.match(content_type)
    if found is None:
        raise ApiError(415, "the body must be a form: `Content-Type: multipart/form-data; boundary=…`", "not_a_form")
    mark = b"\r\n--" + (found[1] or found[2]).encode()
    pieces = (b"\r\n" + body).split(mark, MOST_PARTS + 2)
    if len(pieces) > MOST_PARTS + 2:
        raise ApiError(400, f"the form has more than {MOST_PARTS} parts", "D001")
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise ApiError(400, "the form has no end: its boundary is missing, or the body is cut", "D001")
    form = Form({}, {})
    for number, piece in enumerate(pieces[1:-1], start=1):
        _add(form, piece, number)
    return form


def _add(form: Form, piece: bytes, number: int) -> None:
    head, blank, value = piece.lstrip(b" \t").removeprefix(b"\r\n").partition(b"\r\n\r\n")
    if not blank or len(head) > MOST_HEADER:
        raise ApiError(
            400, f"part {number} of the form has no headers, or more than {MOST_HEADER} bytes of them", "D001"
        )
    lines = head.decode("utf-8", "replace").split("\r\n")
    line = next((line for line in lines if line.lower().startswith("content-disposition:")), "")
    if (named := _NAME.search(line)) is None:
        raise ApiError(400, f"part {number} of the form has no name", "D001")
    name = named[1].removesuffix("[]")
    if _FILE.search(line):
        if name in form.files:
            raise ApiError(400, f"the form has two files called {name[:40]}", "D001", name[:40])
        form.files[name] = value
        return
    try:
        form.fields.setdefault(name, []).append(value.decode())
    except UnicodeDecodeError:
        raise ApiError(400, f"{name[:40]} is not UTF-8", "D003", name[:40]) from None

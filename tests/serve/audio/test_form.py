"""Forms with files: what a client sends is what is read; bounds; what is refused."""

from __future__ import annotations

import os

import httpx
import pytest

from headway.serve.audio.form import MOST_PARTS, parse_form
from headway.serve.errors import ApiError


def test_fields_and_files_are_what_httpx_sends() -> None:
    sound = os.urandom(5000) + b"\r\n--not a boundary\r\n\r\n" + bytes(range(256))
    data = {"model": "m", "prompt": "Grüße\r\n\r\nvon hier", "list[]": ["a", "b"], "empty": ""}
    request = httpx.Request("POST", "http://x/", data=data, files={"file": ('a"b.wav', sound, "audio/wav")})
    form = parse_form(request.headers["content-type"], request.read())
    assert form.files == {"file": sound}
    assert form.fields == {"model": ["m"], "prompt": ["Grüße\r\n\r\nvon hier"], "list": ["a", "b"], "empty": [""]}


def body(*parts: bytes, end: bytes = b"--xx--\r\n") -> bytes:
    return b"".join(b"--xx\r\n" + part + b"\r\n" for part in parts) + end


FIELD = b'Content-Disposition: form-data; name="a"\r\n\r\n1'


def test_a_quoted_boundary_and_other_headers() -> None:
    more = b'Content-Type: text/plain\r\ncontent-disposition: form-data; name="b"\r\n\r\n2'
    found = parse_form('multipart/form-data; charset=utf-8; boundary="xx"', body(FIELD, more))
    assert found.fields == {"a": ["1"], "b": ["2"]} and not found.files


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"nothing", 400),
        (body(FIELD, end=b""), 400),
        (body(b"no headers"), 400),
        (body(b"Content-Disposition: form-data\r\n\r\n1"), 400),
        (body(b"X: " + b"y" * 5000 + b"\r\n" + FIELD), 400),
        (body(*[FIELD] * (MOST_PARTS + 1)), 400),
        (body(b'Content-Disposition: form-data; name="a"\r\n\r\n\xff'), 400),
        (body(*[b'Content-Disposition: form-data; name="f"; filename="x"\r\n\r\n1'] * 2), 400),
    ],
)
def test_broken_forms_are_refused(raw: bytes, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        parse_form("multipart/form-data; boundary=xx", raw)
    assert caught.value.status == status


@pytest.mark.parametrize(
    "kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary=" + "x" * 80]
)
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_form(kind, body(FIELD))
    assert caught.value.status == 415

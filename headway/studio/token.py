"""The token of the studio: made once for a user, kept in a private file, so that a page outlives the server.

Requests send it in a header. A link that the browser opens by itself, a picture or a report, cannot; it carries a
signature of its own path, which opens nothing else.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from headway.errors import NotFoundError

TOKEN = re.compile(r"[A-Za-z0-9_-]{32,64}")


def state_folder() -> Path:
    """Where the studio keeps what has to outlive it: the token and files that were uploaded."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "headway" / "studio"


def read_token(folder: Path) -> str:
    """The token of this user, made if there is none yet. Only the user may read its file."""
    path = folder / "token"
    with suppress(OSError, UnicodeDecodeError):
        if TOKEN.fullmatch(text := path.read_text(encoding="ascii").strip()) and not path.stat().st_mode & 0o077:
            return text
    token = secrets.token_urlsafe(32)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_name(f"token.partial-{os.getpid()}")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(token + "\n")
        partial.replace(path)
    except OSError as error:
        why = f"the studio cannot keep its token in {folder}: {error.strerror or error}"
        raise NotFoundError("F007", why, "set XDG_STATE_HOME to a folder that you can write") from None
    return token


def accepts(token: str, headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether exactly one Authorization header has the token; compared in constant time."""
    given = [value for name, value in headers if name == b"authorization"]
    scheme, _, key = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return hmac.compare_digest(key.strip(), token.encode()) and scheme.lower() == b"bearer"


def sign(token: str, path: str) -> str:
    """A link to a path under /api that opens without the header."""
    return f"{quote(path)}?signature={_signature(token, path)}"


def is_signed(token: str, path: str, query: str) -> bool:
    """Whether the query of a link holds the signature of its path."""
    given = query.removeprefix("signature=")
    return given != query and hmac.compare_digest(given.encode(), _signature(token, path).encode())


def _signature(token: str, path: str) -> str:
    return hmac.new(token.encode(), path.encode(), sha256).hexdigest()

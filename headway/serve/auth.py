"""Where a server listens, by what names it is called, and which keys open it. Nothing heavy is imported here."""

from __future__ import annotations

import errno
import hashlib
import hmac
import ipaddress
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headway.errors import ConfigError, NotFoundError

KEY = "HEADWAY_API_KEY"


def read_keys(given: Sequence[str], file: Path | None, environment: Mapping[str, str]) -> list[str]:
    """Keys of the command line, of a file (one per line), or else of the environment."""
    keys = list(given)
    if file is not None:
        try:
            keys += [line.strip() for line in file.read_text(encoding="ascii").splitlines() if line.strip()]
        except OSError as error:
            raise NotFoundError("F001", f"--key-file {file}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ConfigError("C003", f"--key-file {file}: a key is plain ASCII text") from None
        if not keys:
            raise ConfigError("C003", f"--key-file {file}: there is no key in it")
    if not keys and environment.get(KEY):
        keys = [environment[KEY]]
    if not all(key.isascii() and key.isprintable() and key.strip() and " " not in key for key in keys):
        raise ConfigError("C003", "a key is one word of visible ASCII characters")
    return keys


class Keys:
    """Bearer keys. Only digests are kept, and comparing takes as long for a wrong key as for a right one."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self.digests)

    def accepts(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether there is one Authorization header, with one of the keys. Without keys everybody may come in."""
        if not self.digests:
            return True
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, key = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        digest, found = hashlib.sha256(key.strip()).digest(), False
        for known in self.digests:
            found |= hmac.compare_digest(digest, known)
        return found and scheme.lower() == b"bearer"


def open_socket(host: str, port: int, keys: Sequence[str]) -> socket.socket:
    """The socket to serve on. Without a key it must be this machine's own."""
    sock = listen(host, port)
    if keys or is_loopback(sock):
        return sock
    sock.close()
    message = f"--host {host} can be reached by other machines, and there is no key to keep them out"
    raise ConfigError("C004", message, f"set {KEY}, or give --key-file FILE; or leave --host out")


def listen(host: str, port: int) -> socket.socket:
    """A socket with an address of its own; nobody can connect before the server listens."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError("C003", f"--host {host} is no address of this machine: {error}") from None
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "try another --port; 0 takes a free one"
        if error.errno == errno.EADDRNOTAVAIL:
            hint = "--host is an address of this machine, 127.0.0.1 or 0.0.0.0 for all it has"
        raise ConfigError("C003", f"{host} port {port}: {reason}", hint) from None
    return sock


def url(sock: socket.socket) -> str:
    """Where a client on this machine finds the server."""
    host, port, *_ = sock.getsockname()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(sock: socket.socket) -> bool:
    return ipaddress.ip_address(sock.getsockname()[0]).is_loopback


def loopback_names(sock: socket.socket) -> frozenset[str]:
    """By what names a server on loopback may be called."""
    address: str = sock.getsockname()[0]
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{address}]" if ":" in address else address})

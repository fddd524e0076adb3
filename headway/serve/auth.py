"""API keys, and the address that a server listens on. Imports nothing heavy."""

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
    """Return the keys of the command line and of a file (one per line), or else the key of the environment."""
    keys = list(given)
    if file is not None:
        try:
            keys += [line.strip() for line in file.read_text(encoding="ascii").splitlines() if line.strip()]
        except OSError as error:
            raise NotFoundError("F001", f"--key-file {file}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ConfigError("C003", f"--key-file {file}: keys must be plain ASCII text") from None
        if not keys:
            raise ConfigError("C003", f"--key-file {file}: the file contains no key")
    if not keys and environment.get(KEY):
        keys = [environment[KEY]]
    if not all(key.isascii() and key.isprintable() and key.strip() and " " not in key for key in keys):
        raise ConfigError("C003", "a key must be one word of visible ASCII characters")
    return keys


class Keys:
    """Bearer keys. Keeps only their digests, and compares all of them in constant time."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self.digests)

    def accepts(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether exactly one Authorization header has one of the keys. Without keys, every request passes."""
        if not self.digests:
            return True
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, key = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        digest, found = hashlib.sha256(key.strip()).digest(), False
        for known in self.digests:
            found |= hmac.compare_digest(digest, known)
        return found and scheme.lower() == b"bearer"


def open_socket(host: str, port: int, keys: Sequence[str]) -> socket.socket:
    """Return the socket to serve on. Without a key, its address must be a loopback address."""
    sock = listen(host, port)
    if keys or is_loopback(sock):
        return sock
    sock.close()
    message = f"--host {host} can be reached by other machines, so the server needs a key"
    raise ConfigError("C004", message, f"set {KEY}, or pass --key-file FILE; or leave --host out")


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket. Clients can connect once the server listens."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError("C003", f"--host {host} is not an address of this machine: {error}") from None
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "try another --port; 0: any free port"
        if error.errno == errno.EADDRNOTAVAIL:
            hint = "--host must be an address of this machine: 127.0.0.1, or 0.0.0.0 for all addresses"
        raise ConfigError("C003", f"{host} port {port}: {reason}", hint) from None
    return sock


def url(sock: socket.socket) -> str:
    """Return the URL of the server for clients on this machine."""
    host, port, *_ = sock.getsockname()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(sock: socket.socket) -> bool:
    return ipaddress.ip_address(sock.getsockname()[0]).is_loopback


def loopback_names(sock: socket.socket) -> frozenset[str]:
    """List the host names that clients may use for a server on loopback."""
    address: str = sock.getsockname()[0]
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{address}]" if ":" in address else address})

"""Real servers on free ports of this machine, with a model whose completions are known.

The model recites the alphabet: `d` follows `c`; `a` follows `z` or the end of a line; `A`, `B`, `C` and `.` end a
sequence; any other token repeats. Only the last token decides what follows, nearly always at temperature 1, and by
chance at temperature 2.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch

from headway.api import Bundle, load
from headway.config import presets
from headway.config.model import ClassifyHeadConfig, LMHeadConfig
from headway.data.tokenizers.train import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.serve.auth import open_socket, url
from headway.serve.context import ServedModel
from headway.serve.limits import Limits
from headway.serve.server import Server, make_context

KEY = "a-key-for-tests-7f3a"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
START, END = 256, 257
LENGTH = 512
PLAIN: dict[str, Any] = {"trust_env": False, "timeout": 30, "verify": False}  # certificates take 0.1 s to load


def following(token: int) -> int:
    letter = chr(token)
    if letter in "ABC":
        return ord({"A": "B", "B": "C", "C": "."}[letter])
    if letter == ".":
        return END
    if letter == "\n" or token in (START, END):
        return ord("a")
    return ord("a") + (token - ord("a") + 1) % 26 if "a" <= letter <= "z" else token


def recite(text: str, count: int) -> str:
    """What the model generates after a text, if nothing ends it."""
    written, token = "", ord(text[-1])
    for _ in range(count):
        token = following(token)
        written += chr(token)
    return written


@torch.no_grad()
def reciting_model(width: int = 64) -> Transformer:
    torch.manual_seed(0)
    config = presets.gpt2(1, width, 2, vocab=258, length=LENGTH)
    model = Transformer(replace(config, lm=LMHeadConfig(tied=False))).eval()
    for parameter in model.decoder.blocks.parameters():
        parameter.zero_()  # blocks add nothing: a token is seen alone
    for name, parameter in model.target.named_parameters():
        if "table" not in name:
            parameter.zero_()
    table = model.target.table.weight
    table.normal_()
    seen = torch.nn.functional.layer_norm(table[:258], (width,))
    model.lm.output.weight.zero_()
    for token in range(258):
        model.lm.output.weight[following(token)] += 12 * seen[token] / width
    return model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reciting model with a chat template, saved. Tests must not change it."""
    tokenizer = train_tokenizer("bytes", [], special=("<|im_start|>", "<|im_end|>"))
    made = save_model(reciting_model(), tmp_path_factory.mktemp("serve") / "reciter", tokenizer)
    (made / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def bundle(folder: Path) -> Bundle:
    return load(folder)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A tiny BERT that also classifies texts."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer("wordpiece", ["good bad film day rain sun " * 20], 60)
    base = presets.bert(1, 16, 2, vocab=len(tokenizer), length=32)
    head = ClassifyHeadConfig(labels=3, dense="tanh", pool="first")
    model = Transformer(replace(base, lm=None, nsp=None, classify=head, labels=("bad", "fair", "good"))).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return load(save_model(model, tmp_path_factory.mktemp("serve") / "encoder", tokenizer))


@dataclass
class Running:
    """A server in a thread, and clients for it."""

    url: str
    sock: socket.socket
    server: Server
    served: ServedModel
    logged: list[Mapping[str, Any]]
    key: str = KEY
    clients: list[Any] = field(default_factory=list)

    @property
    def context(self) -> Any:
        return self.server.context

    @property
    def address(self) -> tuple[str, int]:
        parts = httpx.URL(self.url)
        return parts.host, parts.port or 80

    def client(self, **options: Any) -> openai.OpenAI:
        http = openai.DefaultHttpxClient(trust_env=False, verify=False)
        made = openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=self.key, max_retries=0, http_client=http, timeout=30, **options
        )
        self.clients.append(made)
        return made

    def http(self, **headers: str) -> httpx.Client:
        own = {"authorization": f"Bearer {self.key}"} | headers
        made = httpx.Client(base_url=self.url, headers=own, **PLAIN)
        self.clients.append(made)
        return made

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        with httpx.Client(base_url=self.url, **PLAIN) as client:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            own = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
            return client.post(path, content=raw, headers=own | headers)

    def complete(self, **more: Any) -> httpx.Response:
        """Post a completion request: 40 tokens after `a`, greedily, unless `more` says otherwise."""
        body = {"model": self.served.id, "prompt": "a", "max_tokens": 40, "temperature": 0}
        return self.post("/v1/completions", body | more)

    def works(self) -> bool:
        """Whether a completion is as it should be."""
        return bool(self.complete().json()["choices"][0]["text"] == recite("a", 40))

    def get(self, path: str, **headers: str) -> httpx.Response:
        with httpx.Client(base_url=self.url, **PLAIN) as client:
            return client.get(path, headers={"authorization": f"Bearer {self.key}"} | headers)

    def line(self, answer: httpx.Response) -> Mapping[str, Any]:
        """The log entry of a request."""
        ours = answer.headers["x-request-id"]
        assert until(lambda: any(line["id"] == ours for line in self.logged))
        (only,) = [line for line in self.logged if line["id"] == ours]
        return only

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def raw(self, data: bytes | str, *, half_close: bool = False) -> bytes:
        """What the server sends after these bytes, up to the end of the connection."""
        with self.connect() as sock:
            sock.sendall(data.encode("latin-1") if isinstance(data, str) else data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
            return receive(sock)

    def idle(self, seconds: float = 5.0) -> bool:
        """Whether nothing is left of any request, after a moment."""
        return until(lambda: not self.context.open and not self.context.running and not self.busy(), seconds)

    def busy(self) -> int:
        stats = self.served.engine.stats() if self.served.engine else None
        return 0 if stats is None else stats.running + stats.waiting


def receive(sock: socket.socket) -> bytes:
    """All bytes up to the end of the connection."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def http(target: str, body: Any = None, *, headers: str = "", key: str | None = KEY) -> bytes:
    """An HTTP request as bytes; `headers` are whole lines."""
    raw = b"" if body is None else json.dumps(body).encode()
    lines = f"{target} HTTP/1.1\r\nHost: localhost\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "") + headers
    if body is not None:
        lines += f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n"
    return f"{lines}\r\n".encode() + raw


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def refusal(answer: httpx.Response | bytes) -> tuple[int, str]:
    """Status and code of an error, which has OpenAI's shape."""
    raw = isinstance(answer, bytes)
    error = json.loads(answer.partition(b"\r\n\r\n")[2] if raw else answer.content)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return status(answer) if raw else answer.status_code, error["code"]


def in_threads(work: Callable[[Any], Any], inputs: Iterable[Any]) -> list[Any]:
    """Results of a function for all inputs, each in a thread of its own, in the order in which they end."""
    results: list[Any] = []
    threads = [threading.Thread(target=lambda each=each: results.append(work(each))) for each in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def until(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return true()


@contextmanager
def running(bundle: Bundle, *keys: str, **limits: Any) -> Iterator[Running]:
    """A server for this model until the end of the block."""
    logged, ready = list[Mapping[str, Any]](), threading.Event()
    sock = open_socket("127.0.0.1", 0, keys)
    served = ServedModel(bundle, Limits(**limits))
    context = make_context(served, sock, keys, logged.append)
    server = Server(context, ready.set)
    served.start()
    thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
    thread.start()
    assert ready.wait(10)
    made = Running(url(sock), sock, server, served, logged)
    try:
        yield made
    finally:
        for client in made.clients:
            client.close()
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()
        context.pool.shutdown()
        served.close()


@pytest.fixture(scope="module")
def reciter(bundle: Bundle) -> Iterator[Running]:
    with running(bundle, KEY) as made:
        yield made

"""Servers to talk to: real ones, on free ports of this machine, with a model whose answers are known.

The model recites: after `c` comes `d`, after `z` or the end of a line `a`; `A`, `B`, `C` and `.` end a text, and all
else is repeated. Each token alone decides what follows, with near certainty at temperature 1 and by chance at 2.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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
from headway.model.model import Model
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
    """What the model writes after a text, if nothing ends it."""
    written, token = "", ord(text[-1])
    for _ in range(count):
        token = following(token)
        written += chr(token)
    return written


@torch.no_grad()
def reciting_model(width: int = 64) -> Model:
    torch.manual_seed(0)
    config = presets.gpt2(1, width, 2, vocab=258, length=LENGTH)
    model = Model(replace(config, lm=LMHeadConfig(tied=False))).eval()
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
    """The reciting model with a chat template, saved; not to be changed."""
    tokenizer = train_tokenizer("bytes", [], special=("<|im_start|>", "<|im_end|>"))
    made = save_model(reciting_model(), tmp_path_factory.mktemp("serve") / "reciter", tokenizer)
    (made / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def bundle(folder: Path) -> Bundle:
    return load(folder)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A tiny BERT that also labels texts."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer("wordpiece", ["good bad film day rain sun " * 20], 60)
    base = presets.bert(1, 16, 2, vocab=len(tokenizer), length=32)
    head = ClassifyHeadConfig(labels=3, dense="tanh", pool="first")
    model = Model(replace(base, lm=None, nsp=None, classify=head, labels=("bad", "fair", "good"))).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return load(save_model(model, tmp_path_factory.mktemp("serve") / "encoder", tokenizer))


@dataclass
class Running:
    """A server in a thread, and ways to talk to it."""

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

    def get(self, path: str, **headers: str) -> httpx.Response:
        with httpx.Client(base_url=self.url, **PLAIN) as client:
            return client.get(path, headers={"authorization": f"Bearer {self.key}"} | headers)

    def line(self, answer: httpx.Response) -> Mapping[str, Any]:
        """What the log says of a request, once it has been answered."""
        ours = answer.headers["x-request-id"]
        assert until(lambda: any(line["id"] == ours for line in self.logged))
        (only,) = [line for line in self.logged if line["id"] == ours]
        return only

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def idle(self, seconds: float = 5.0) -> bool:
        """Whether all is as it was before the first request, after a moment."""
        return until(lambda: not self.context.open and not self.context.running and not self.busy(), seconds)

    def busy(self) -> int:
        stats = self.served.engine.stats() if self.served.engine else None
        return 0 if stats is None else stats.running + stats.waiting


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

"""Requests to try a served model with, as lines for a shell and for Python that work as pasted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.serve.auth import KEY

if TYPE_CHECKING:
    from headway.serve.context import ServedModel

SAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}),
    "complete": ("/v1/completions", {"prompt": "Hello", "max_tokens": 50}),
    "embed": ("/v1/embeddings", {"input": "Hello"}),
}
"""Capability → an example request; others use /v1/run."""
CALLS = {
    "chat": 'chat.completions.create(model={}, messages=[{{"role": "user", "content": "Hello"}}])',
    "complete": 'completions.create(model={}, prompt="Hello")',
    "embed": 'embeddings.create(model={}, input="Hello")',
}
"""The same with OpenAI's client."""


@dataclass(frozen=True)
class Example:
    """An example request for one capability of a model."""

    capability: str
    path: str
    body: dict[str, Any]

    def curl(self, url: str, auth: str = "") -> str:
        """A line for a shell. `auth`: the key as a shell expression."""
        data = json.dumps(self.body).replace("'", "\\u0027")
        key = f' -H "Authorization: Bearer {auth}"' if auth else ""
        return f"curl {url}{self.path} -H 'Content-Type: application/json'{key} -d '{data}'"

    def python(self, url: str, *, auth: bool = False) -> list[str]:
        """Lines with OpenAI's client where it has such a call, or else with Python's own library."""
        model, secret = json.dumps(self.body["model"]), f'os.environ["{KEY}"]' if auth else '"none"'
        if self.capability in CALLS:
            return [
                f"{'import os; ' if auth else ''}from openai import OpenAI",
                f'client = OpenAI(base_url="{url}/v1", api_key={secret})',
                f"print(client.{CALLS[self.capability].format(model)})",
            ]
        headers = (
            '{"Content-Type": "application/json"' + (f', "Authorization": "Bearer " + {secret}' if auth else "") + "}"
        )
        return [
            f"import json{', os' if auth else ''}, urllib.request",
            f"body = json.dumps({self.body!r}).encode()",
            f'request = urllib.request.Request("{url}{self.path}", body, {headers})',
            "print(urllib.request.urlopen(request).read().decode())",
        ]


def examples(served: ServedModel) -> list[Example]:
    """One for each capability."""
    found = []
    for name in served.capabilities():
        path, body = SAMPLES.get(name) or ("/v1/run", {**served.tasks.sample(name), "task": name})
        found.append(Example(name, path, {"model": served.id, **body}))
    return found

"""A model that says what a test wants, and chat templates with tools, each in the style of a family.

Only the position of a token decides what follows it, so `say` can put any text after a prompt of known length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.api import load
from headway.config import presets
from headway.config.model import LMHeadConfig
from headway.data.tokenizers.train import train_tokenizer
from headway.hub.folder import save_model
from headway.model.model import Transformer
from headway.serve.schemas import ChatRequest
from tests.serve.conftest import KEY, Running, running

SPECIAL = ("<|im_start|>", "<|im_end|>", "[TOOL_CALLS]", "<|python_tag|>")
LENGTH = 768
TURNS = "<|im_start|>{{ m.role }}\n{{ m.content }}"
HERMES = (
    "{% if tools %}<|im_start|>system\nTools:{% for tool in tools %}\n{{ tool.function | tojson }}{% endfor %}\n"
    "Answer with <tool_call>\\n{json}\\n</tool_call>.<|im_end|>\n{% endif %}"
    "{% for m in messages %}" + TURNS + "{% for call in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MISTRAL = (
    "{% for m in messages %}{% if tools and loop.last %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]"
    "{% endif %}"
    "{% if m.tool_calls %}[TOOL_CALLS][{% for call in m.tool_calls %}{% if call.id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}{{ call.function | tojson }}{% endfor %}]"
    "{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}"
)
LLAMA = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if tools and loop.first %}"
    'Answer with {"name": name, "parameters": arguments}.{% for t in tools %}\n{{ t | tojson }}{% endfor %}{% endif %}'
    "{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"hermes": HERMES, "mistral": MISTRAL, "llama": LLAMA}


@torch.no_grad()
def blank_model() -> Transformer:
    config = presets.gpt2(1, LENGTH, 2, vocab=258 + len(SPECIAL), length=LENGTH)
    model = Transformer(replace(config, lm=LMHeadConfig(tied=False))).eval()
    for module in (model.decoder.blocks, model.target):
        for parameter in module.parameters():
            parameter.zero_()
    assert model.target.positions is not None
    model.target.positions.table.weight.copy_(torch.eye(LENGTH))
    model.lm.output.weight.zero_()
    return model


@contextmanager
def speaking(folder: Path, template: str, *keys: str, **limits: Any) -> Iterator[Running]:
    """A server for such a model."""
    tokenizer = train_tokenizer("bytes", [], special=SPECIAL)
    made = save_model(blank_model(), folder / "speaker", tokenizer)
    (made / "chat_template.jinja").write_text(template, encoding="utf-8")
    with running(load(made), *(keys or (KEY,)), **limits) as server:
        yield server


@torch.no_grad()
def say(server: Running, body: dict[str, Any], text: str | Sequence[str]) -> None:
    """Let the model answer a conversation with a text, and end. Parts of a text may be special tokens."""
    assert server.served.requests is not None and server.served.tokenizer is not None
    chat = ChatRequest.model_validate({k: v for k, v in body.items() if k in ChatRequest.model_fields})
    (request, *_) = server.served.requests.build(chat)
    ids: list[int] = []
    for part in [text] if isinstance(text, str) else text:
        own = server.served.tokenizer.backend.token_to_id(part) if part in SPECIAL else None
        ids += [own] if own is not None else list(part.encode())
    weight = server.served.model.lm.output.weight
    weight.zero_()
    for place, token in enumerate([*ids, server.served.requests.eos_ids[0]], len(request.prompt) - 1):
        weight[token, place] += 1.0


def weather(**more: Any) -> dict[str, Any]:
    """A tool that wants a city and a number of days."""
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"$ref": "#/$defs/days"}},
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
    }
    function = {"name": "weather", "description": "Tell the weather.", "parameters": parameters}
    return {"type": "function", "function": function | more}


def clock() -> dict[str, Any]:
    return {"type": "function", "function": {"name": "clock", "description": "Tell the time."}}


def call(name: str, arguments: Any, key: str = "arguments") -> str:
    return json.dumps({"name": name, key: arguments})

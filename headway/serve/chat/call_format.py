"""How a model spells a tool call. Its chat template tells: it spells the calls of earlier messages.

Three formats cover most models. Hermes (Qwen, SmolLM): `<tool_call>{"name": …, "arguments": …}</tool_call>`. Mistral:
`[TOOL_CALLS][{"name": …, "arguments": …}, …]`. Llama 3: `{"name": …, "parameters": …}` and nothing else.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass

from headway.data.chat_template.template import ChatTemplate
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError

TOOLS = re.compile(r"\btools\b")
PROBE = "headway_probe"
"""Name of a tool that a template is shown, to see whether it passes tools on."""
LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, kw_only=True)
class CallFormat:
    opening: str = ""
    """What comes before a call; empty: a text that begins with a call is one."""
    closing: str = ""
    """What comes after a call; empty: the end of the text."""
    alias: str = ""
    """What some models put before a call, though the format has no opening."""
    key: str = "arguments"
    listed: bool = False
    """Whether the calls are the entries of one JSON list."""
    several: bool = True
    """Whether a message may have several calls."""
    short_ids: bool = False
    """Whether the template takes only ids of nine letters and digits."""

    def new_id(self) -> str:
        if self.short_ids:
            return "".join(secrets.choice(LETTERS) for _ in range(9))
        return f"call_{secrets.token_hex(12)}"

    def shown(self, tokenizer: Tokenizer) -> dict[int, str]:
        """Special tokens that belong to the format. Text of special tokens is otherwise left out."""
        marks = {self.opening, self.closing, self.alias}
        added = tokenizer.backend.get_added_tokens_decoder()
        return {i: token.content for i, token in added.items() if token.special and token.content in marks}


HERMES = CallFormat(opening="<tool_call>", closing="</tool_call>")
MISTRAL = CallFormat(opening="[TOOL_CALLS]", listed=True, short_ids=True)
LLAMA = CallFormat(alias="<|python_tag|>", key="parameters", several=False)


def find_format(template: ChatTemplate | None, tokens: Mapping[str, str]) -> CallFormat | None:
    """The format of a template's calls. None: the template leaves tools out, so the model would not see them."""
    if template is None or not TOOLS.search(template.source) or not _passes_tools_on(template, tokens):
        return None
    return next((f for f in (MISTRAL, HERMES) if f.opening in template.source), LLAMA)


def _passes_tools_on(template: ChatTemplate, tokens: Mapping[str, str]) -> bool:
    parameters = {"type": "object", "properties": {}}
    function = {"name": PROBE, "description": "A probe.", "parameters": parameters}
    messages = [{"role": "user", "content": "Hello"}]
    try:
        text = template.render(messages, tokens=tokens, tools=[{"type": "function", "function": function}])
    except DataError:  # it refuses this conversation
        return False
    return PROBE in text

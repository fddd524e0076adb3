"""Chat templates: the text and tokens of `transformers`, answers marked exactly, and nothing a template can break."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from headway.data.chat_template import client as module
from headway.data.chat_template.client import OUTPUT_LIMIT
from headway.data.chat_template.template import (
    SOURCE_LIMIT,
    ChatTemplate,
    EncodedChat,
    Message,
    encode_chats,
    parse_template,
    special_token_strings,
)
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DamagedError, DataError, MemoryOrDiskError, NotFoundError

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\nTools:' }}
    {%- for tool in tools %}
        {{- "\\n" + (tool | tojson) }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are helpful.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

LLAMA2 = """\
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
{% set system_message = false %}{% endif %}{% for message in loop_messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' + tool_call.arguments | tojson + "}" }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

ZEPHYR = """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}\
{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""

MARKED = """\
{% for message in messages %}
{% if message.role == 'assistant' %}
<|im_start|>assistant
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}

{%- else %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{% if message.content == 'stop' %}{% break %}{% endif %}
{% endfor %}"""

TEMPLATES = {
    "chatml": CHATML,
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "zephyr": ZEPHYR,
    "gemma": GEMMA,
    "marked": MARKED,
}
SPECIAL = (
    *("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|system|>", "<|assistant|>"),
)
SYSTEM = {"role": "system", "content": "Be brief. "}
CHAT = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": " And <b>of Italy</b>? "},
    {"role": "assistant", "content": "Rome,\nnaturally 🍝 <|im_end|"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather <of> a 'place' & é",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@functools.cache
def tokenizer() -> Tokenizer:
    texts = ["What is the capital of France? Paris. And of Italy? Rome, naturally. user assistant system model " * 3]
    return train_tokenizer("bpe", texts, 320, special=SPECIAL)


def oracle(source: str) -> Any:
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer().backend, chat_template=source, **names)


def render(source: str, messages: list[Message] | None = None, **more: Any) -> str:
    return ChatTemplate(source).render(messages or [], **more)


def encode_chat(tokenizer: Tokenizer, template: ChatTemplate, messages: list[Message]) -> EncodedChat:
    (found,) = encode_chats(tokenizer, template, [messages])
    if isinstance(found, DataError):
        raise found
    return found


def refused(source: str, *words: str, messages: list[Message] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        render(source, messages)
    assert caught.value.code == "D008"
    for word in words:
        assert word in str(caught.value)
    assert str(caught.value).isprintable() or "\n  " in str(caught.value)
    return str(caught.value)


# --- the text and the tokens of transformers -----------------------------------------------------


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("name", "system"),
    [(name, system) for name in TEMPLATES for system in (False, True) if (name, system) != ("gemma", True)],
)
def test_texts_and_ids_are_those_of_transformers(name: str, system: bool, length: int, prompt: bool) -> None:
    messages = [*([SYSTEM] if system else []), *CHAT[:length]]
    theirs = oracle(TEMPLATES[name])
    text = render(TEMPLATES[name], messages, tokens=special_token_strings(tokenizer()), add_generation_prompt=prompt)
    assert text == theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    if not prompt:
        ids, _ = encode_chat(tokenizer(), ChatTemplate(TEMPLATES[name]), messages)
        assert ids == theirs.apply_chat_template(messages)["input_ids"]


@pytest.mark.parametrize("name", ["chatml", "llama3"])
def test_tools_and_what_they_answer(name: str) -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]}
    result = {"role": "tool", "content": {"sky": "blue <é>"}}
    messages = [*CHAT[:3], *([call, result] if name == "llama3" else [])]
    variables = {**special_token_strings(tokenizer()), "messages": messages, "tools": TOOLS}
    text = ChatTemplate(TEMPLATES[name]).render_all([variables])[0].text
    assert text == oracle(TEMPLATES[name]).apply_chat_template(messages, tools=TOOLS, tokenize=False)
    assert "The weather <of> a 'place' & é" in text


def test_conversations_that_a_template_refuses() -> None:
    refused(GEMMA, "it refuses this conversation: System role not supported", messages=[SYSTEM, *CHAT])
    refused(LLAMA2, "roles must alternate user/assistant", messages=CHAT[1:2])


def test_variables_for_a_template() -> None:
    source = "{{ name }}{{ bos_token }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}"
    assert render(source, tokens={"name": "x", "bos_token": "<s>"}) == "x<s>TrueTrueFalse"
    same = render("{{ name }}", tokens={"name": [1, 2.5, None, {"a": "é\ud83c"}]})
    assert same == str([1, 2.5, None, {"a": "é\ud83c"}])
    assert render("{{ half }}", tokens={"half": "\ud83c"}) == "\ud83c"  # the tokenizer refuses it, with its place


def test_functions_that_templates_expect() -> None:
    assert render("{{ {'é': [1, '<']} | tojson }}") == '{"é": [1, "<"]}'
    assert render("{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}") == '{\n  "a": 2,\n  "b": 1\n}'
    assert (
        render("{{ [1, 2] | tojson(separators=(',', ':')) }}{{ 'é' | tojson(ensure_ascii=true) }}") == '[1,2]"\\u00e9"'
    )
    assert render("{{ strftime_now('%Y') }}") in (time.strftime("%Y"), str(int(time.strftime("%Y")) + 1))
    assert (
        render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% break %}{% endfor %}") == "0"
    )
    assert (
        render("{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}")
        == "6"
    )
    assert render("  {% if true %}\nx\n  {% endif %}\n") == "x\n"


def test_the_clock_is_that_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-9")
    monkeypatch.setattr(module, "_child", None)
    started: list[Any] = []
    try:
        offset = int(render("{{ strftime_now('%H') }}")) - int(time.strftime("%H", time.gmtime()))
        started.append(module._child)
        assert offset % 24 in (9, 10)
    finally:
        for child in started:
            module.stop(child)


# --- which tokens are answers --------------------------------------------------------------------


def marked_text(source: str, messages: list[Message]) -> list[str]:
    """The runs of tokens in the mask, as text."""
    ids, mask = encode_chat(tokenizer(), ChatTemplate(source), messages)
    assert len(ids) == len(mask)
    runs: list[list[int]] = []
    for i, (token, inside) in enumerate(zip(ids, mask, strict=True)):
        if inside:
            runs += [] if i and mask[i - 1] else [[]]
            runs[-1].append(token)
    return [tokenizer().decode(run, skip_special=False) for run in runs]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("chatml", "Paris.<|im_end|>", "Rome,\nnaturally 🍝 <|im_end|<|im_end|>"),
        ("llama2", " Paris. </s>", " Rome,\nnaturally 🍝 <|im_end| </s>"),
        ("llama3", "Paris.<|eot_id|>", "Rome,\nnaturally 🍝 <|im_end|<|eot_id|>"),
        ("zephyr", "Paris.</s>", "Rome,\nnaturally 🍝 <|im_end|</s>"),
        ("gemma", "Paris.<end_of_turn>", "Rome,\nnaturally 🍝 <|im_end|<end_of_turn>"),
        ("marked", "Paris.<|im_end|>", "Rome,\nnaturally 🍝 <|im_end|<|im_end|>"),
    ],
)
def test_answers_are_marked_with_the_token_that_ends_them(name: str, first: str, second: str) -> None:
    assert marked_text(TEMPLATES[name], CHAT) == [first, second]
    assert marked_text(TEMPLATES[name], CHAT[:3]) == [first]
    assert marked_text(TEMPLATES[name], CHAT[:1]) == []


def test_marked_answers_are_those_of_transformers() -> None:
    for messages in (CHAT, [SYSTEM, *CHAT], [*CHAT[:1], {"role": "assistant", "content": "stop"}, *CHAT[2:]]):
        ids, mask = encode_chat(tokenizer(), ChatTemplate(MARKED), messages)
        theirs = oracle(MARKED).apply_chat_template(messages, return_assistant_tokens_mask=True)
        assert ids == theirs["input_ids"]
        assert [int(inside) for inside in mask] == theirs["assistant_masks"]
        assert 0 < sum(mask) < len(mask)
    text_only = MARKED.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>")
    ids, mask = encode_chat(tokenizer(), ChatTemplate(text_only), CHAT)
    theirs = oracle(text_only).apply_chat_template(CHAT, return_assistant_tokens_mask=True)
    assert (ids, [int(inside) for inside in mask]) == (theirs["input_ids"], theirs["assistant_masks"])
    assert marked_text(text_only, CHAT[:2]) == ["Paris."]


WORDS = st.text(st.sampled_from("ab Pé🍝.\n<|"), max_size=8)


@settings(max_examples=30)
@given(st.lists(WORDS, min_size=2, max_size=6))
def test_both_ways_of_marking_agree(contents: list[str]) -> None:
    """The same text from a template with and one without blocks; a turn's first line must not grow into its head."""
    roles = ["user", "assistant"] * 3
    messages = [{"role": role, "content": f"x{text}"} for role, text in zip(roles, contents, strict=False)]
    plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    plain += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    marked = plain.replace(
        "{{ m.content }}<|im_end|>",
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
        "{% else %}{{ m.content }}<|im_end|>{% endif %}",
    ).replace("{% endif %}\n{% endfor %}", "{% endif %}{{ '\n' }}{% endfor %}")
    assert encode_chat(tokenizer(), ChatTemplate(marked), messages) == encode_chat(
        tokenizer(), ChatTemplate(plain), messages
    )


def test_the_template_alone_says_what_stands_around_a_text() -> None:
    from tokenizers.processors import TemplateProcessing

    own = train_tokenizer("bpe", ["a b"], 270, special=SPECIAL)
    own.backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", own.special["bos"])])
    assert own.encode("a").ids[0] == own.special["bos"]
    ids, mask = encode_chat(
        own, ChatTemplate("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"), CHAT
    )
    assert ids.count(own.special["bos"]) == 1
    assert len(ids) == len(mask)


def test_a_turn_that_only_a_line_ends() -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '\n' }}{% endfor %}"
    source += "{% if add_generation_prompt %}assistant:{% endif %}"
    assert marked_text(source, CHAT[:2]) == [" Paris.\n"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "{% for m in messages %}{{ m.content }}{{ '!' if loop.last and m.role == 'assistant' }}{% endfor %}",
            "more messages follow",
        ),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
            "its prompt",
        ),
    ],
)
def test_templates_that_do_not_tell_answers_apart_are_refused(source: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        encode_chat(tokenizer(), ChatTemplate(source), CHAT)
    assert caught.value.code == "D008"
    assert "message 2" in str(caught.value)
    assert "{% generation %}" in caught.value.hint


def test_a_block_whose_place_is_lost_is_refused() -> None:
    source = "{% set x %}{% generation %}yes{% endgeneration %}{% endset %}no{{ x }}"
    with pytest.raises(DataError, match="set block"):
        encode_chat(tokenizer(), ChatTemplate(source), CHAT)


def test_conversations_that_are_none() -> None:
    with pytest.raises(DataError, match="without messages"):
        encode_chat(tokenizer(), ChatTemplate(CHATML), [])
    for wrong in (["hi"], [CHAT[0], None]):
        with pytest.raises(DataError, match=f"message {len(wrong)} is"):
            encode_chat(tokenizer(), ChatTemplate(CHATML), wrong)  # type: ignore[arg-type]
    for content in (b"bytes", object()):
        with pytest.raises(DataError, match="JSON"):
            render(CHATML, [{"role": "user", "content": content}])
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(DataError, match="JSON"):
        render("", [{"role": "user", "content": deep}])
    with pytest.raises(DataError, match="limit"):
        render("", [{"role": "user", "content": "x" * 8_000_000}])


# --- what a template may not do ------------------------------------------------------------------

ESCAPES = """\
{{ ''.__class__ }}
{{ ''.__class__.__mro__[1].__subclasses__() }}
{{ ''.__class__.__base__.__subclasses__() }}
{{ [].__class__.__base__.__subclasses__()[0].__init__.__globals__ }}
{{ ().__class__.__bases__[0].__subclasses__() }}
{{ {}.__class__.__mro__ }}
{{ 1 .__class__.__mro__ }}
{{ ''['__class__'] }}
{{ ''['__cla' ~ 'ss__'] }}
{{ ''|attr('__class__') }}
{{ ''|attr('__cla' + 'ss__')|attr('__mro__') }}
{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f') }}
{{ ''|attr(['__class', '__']|join) }}
{{ ['']|map(attribute='__class__')|list }}
{{ ['']|map('attr', '__class__')|list }}
{{ ['']|selectattr('__class__')|list }}
{{ ['']|groupby('__class__')|list }}
{{ ['']|sort(attribute='__class__')|list }}
{{ ['']|sum(attribute='__class__') }}
{{ ['']|max(attribute='__class__.__name__') }}
{{ ['']|unique(attribute='__class__')|list }}
{{ '{0.__class__}'.format('') }}
{{ '{x.__class__.__mro__}'.format_map({'x': ''}) }}
{{ '{0[__class__]}'.format('') }}
{{ ('{0.__class__.__init__.__globals__}'|attr('format'))(lipsum) }}
{{ (['{0.__class__}']|map('attr', 'format')|list)[0]('') }}
{{ '%s'|format(''.__class__) }}
{{ self.__init__.__globals__ }}
{{ self._TemplateReference__context }}
{{ self.__class__ }}
{{ lipsum.__globals__['os'].popen('id').read() }}
{{ lipsum.__globals__.__builtins__ }}
{{ lipsum|attr('__globals__') }}
{{ cycler.__init__.__globals__.os.popen('id').read() }}
{{ joiner.__init__.__globals__.os }}
{{ namespace.__init__.__globals__.os }}
{{ range.__class__.__base__ }}
{{ dict.__subclasses__() }}
{{ dict.mro() }}
{{ dict.__base__ }}
{{ raise_exception.__globals__ }}
{{ raise_exception.__code__.co_consts }}
{{ strftime_now.__globals__['sys'].modules }}
{{ strftime_now.__closure__ }}
{{ messages.__class__ }}
{{ messages[0].__init__ }}
{% set x = namespace(__class__=1) %}{{ x.__class__.__init__.__globals__ }}
{% macro m() %}{% endmacro %}{{ m.__globals__ }}{{ m._func.__globals__ }}
{% macro m() %}{% endmacro %}{{ m._environment.globals }}{{ m._invoke }}
{% for x in [1] %}{{ loop.__class__ }}{{ loop._iterator.__class__ }}{% endfor %}
{{ (x for x in []).gi_frame }}
{{ [1]|map('string')|attr('gi_frame') }}
{{ ([1]|map('string')).gi_code }}
{{ ([1]|map('string')).gi_frame.f_back.f_builtins }}
{% include '/etc/passwd' %}
{% import 'os' as os %}{{ os }}
{% from 'os' import popen %}{{ popen('id') }}
{% extends '/etc/passwd' %}
{{ import('os') }}
{{ __import__('os').popen('id').read() }}
{{ open('/etc/passwd').read() }}
{{ eval('1+1') }}
{{ config }}{{ request.application.__globals__ }}{{ url_for.__globals__ }}
{{ messages.append(1) }}
{{ messages.clear() }}
{{ messages[0].update({'role': 'x'}) }}
{{ messages[0].pop('role') }}
{% do messages.append(1) %}
{{ messages|attr('append')(1) }}
{{ (messages|map('attr', 'clear')|list)[0]() }}
{{ caller.__globals__ }}{{ varargs }}{{ kwargs }}
{{ ''.join.__self__.__class__ }}
{{ ''.upper.__func__ }}
{{ environment.globals }}{{ context.eval_ctx }}
{{ messages[0]['role'].__reduce_ex__(2) }}
""".splitlines()
SIGNS = ["<class", "<module", "<function", "<built-in", "<frame", "<code", "0x", "root:", "uid=", "site-packages"]
SIGNS += ["'os'"]


def test_there_are_many_ways_out() -> None:
    assert len(set(ESCAPES)) == len(ESCAPES) > 50


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out(source: str) -> None:
    """Either an error, or text without any object of Python's in it; and the messages are as they were."""
    probe = source + "|{{ messages | tojson }}"
    try:
        text = render(probe, [{"role": "user", "content": "hi"}])
    except DataError as error:
        assert error.code == "D008"
        assert not any(sign in str(error) for sign in SIGNS[:-1])
        return
    assert not any(sign in text for sign in SIGNS), text
    assert text.endswith('|[{"role": "user", "content": "hi"}]')
    assert len(text) < 60


def test_the_signs_would_show() -> None:
    """What the test above looks for is what an object prints as."""
    for value in (str, os, len, render, render.__code__):
        assert any(sign in str(value) for sign in SIGNS)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
        "{{ 7 ** (7 ** 9) }}",
        "{% set x = 7 ** (7 ** 9) %}",
        "{{ (range(99999)|list * 999)|sort|length }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    ],
)
def test_a_template_that_does_not_end(source: str) -> None:
    start = time.perf_counter()
    message = refused(source)
    assert "more than 250 ms" in message or "memory" in message
    assert time.perf_counter() - start < 5
    assert render("{{ 1 }}") == "1"  # and the next one is served


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{{ ('a' * 10 ** 9)|length }}",
        "{{ 'a'.ljust(10 ** 9)|length }}",
        "{{ ('a'|center(10 ** 9))|length }}",
        "{{ ('%0999999999d' % 1)|length }}",
        "{{ '{:>999999999}'.format(1)|length }}",
        "{{ ([1] * 10 ** 9)|length }}",
        "{{ ('a'|indent(10 ** 9, true))|length }}",
        "{% set x = namespace(v='abcdefgh') %}{% for i in range(40) %}{% set x.v = x.v ~ x.v %}{% endfor %}",
        "{% set x %}{{ 'ab' * 10 ** 8 }}{% endset %}{% set y %}{{ x }}{{ x }}{{ x }}{% endset %}",
    ],
)
def test_a_template_that_asks_for_all_memory(source: str) -> None:
    message = refused(source)
    assert "512 MB of memory" in message or "more than 250 ms" in message
    assert render("{{ 1 }}") == "1"


def test_the_memory_it_may_have_is_enough_for_a_long_conversation() -> None:
    long = [{"role": "user", "content": "é" * 400_000}]
    assert render("{{ messages[0].content }}", long) == "é" * 400_000


def test_limits_of_size() -> None:
    assert render("{{ 'é' * 500000 }}") == "é" * (OUTPUT_LIMIT // 2)
    refused("{{ 'é' * 500000 }}a", "1,000,000 bytes of text")
    refused("{% for i in range(99999) %}{{ 'x' * 99 }}{% endfor %}", "1,000,000 bytes of text")
    ChatTemplate("é" * (SOURCE_LIMIT // 2))
    with pytest.raises(DataError, match="65,538 bytes; the limit is 65,536"):
        ChatTemplate("é" * (SOURCE_LIMIT // 2) + "é")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% if %}", "line 1: Expected an expression"),
        ("\n{{ 'a' }}\n{% endfor %}", "line 3: Encountered unknown tag 'endfor'"),
        ("\n\n{{ messages[3].role }}", "line 3: list object has no element 3"),
        ("{{ x.y.z }}", "line 1: 'x' is undefined"),
        ("\n{{ raise_exception('No \x1b[31m way') }}", "line 2: it refuses this conversation: 'No \\x1b[31m way'"),
        ("{% macro f() %}\n{{ x.y.z }}{% endmacro %}\n\n{{ f() }}", "line 2: 'x' is undefined"),
        ("{{ '%d' % 'x' }}", "line 1"),
        ("{{ {}|tojson(1, 2, 3, 4, 5, 6) }}", "line 1"),
        ("{{ x|nosuch }}", "nosuch"),
        ("{{ object() | tojson }}", "undefined"),
        ("{{" + "(" * 30_000 + ")" * 30_000 + "}}", "chat template"),
        ("{% if x %}" * 300 + "{% endif %}" * 300, "chat template"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% generation %}", "endgeneration"),
        ("{{ range(100001) | length }}", "Range too big"),
    ],
)
def test_mistakes_are_named_with_their_line(source: str, words: str) -> None:
    refused(source, words)


# --- the process it runs in ----------------------------------------------------------------------


def test_one_process_serves_and_a_dead_one_is_replaced() -> None:
    assert render("{{ 1 }}") == "1"
    first = module._child
    assert first is not None
    assert render("{{ 2 }}") == "2"
    assert module._child is first
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert render("{{ 3 }}") == "3"
    assert module._child is not first
    refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    assert module._child is None


def ending(monkeypatch: pytest.MonkeyPatch, *signals: int) -> list[int]:
    """Have the sandbox end by these signals in the middle of a render, one each; how many renders there were."""
    talk, asked, left = module._round_trip, list[int](), list(signals)

    def told(child: Any, line: bytes, seconds: float) -> bytes:
        if line:
            asked.append(child.pid)
        if line and left:
            os.kill(child.pid, signal.SIGSTOP)  # it gets the request and does not answer
            child.stdin.write(line)
            child.stdin.flush()
            os.kill(child.pid, left.pop(0))
            os.kill(child.pid, signal.SIGCONT)
            child.wait()
            return b""
        return talk(child, line, seconds)

    monkeypatch.setattr(module, "_round_trip", told)
    return asked


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGHUP])
def test_a_process_that_is_ended_in_the_middle(how: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one renders the same."""
    if signal.getsignal(how) is signal.SIG_IGN:
        pytest.skip("started with nohup: the process ignores this signal as well")
    asked = ending(monkeypatch, how)
    assert render("{{ 1 }}") == "1"
    assert len(set(asked)) == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_processes_that_are_ended_again(how: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the template nor the clock is to blame."""
    asked = ending(monkeypatch, how, how)
    with pytest.raises(MemoryOrDiskError) as error:
        render("{{ 1 }}")
    assert error.value.code == "M001" and "within" not in error.value.message
    assert len(asked) == 2
    assert render("{{ 2 }}") == "2"


def test_ends_that_the_template_brought_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a bound, or by the same fault each time."""
    for ends in ([signal.SIGPROF], [signal.SIGABRT], [signal.SIGSEGV] * 2):
        asked = ending(monkeypatch, *ends)
        refused("{{ 1 }}")
        assert len(asked) == len(ends)
        monkeypatch.undo()


def test_an_interrupt_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert render("{{ 1 }}") == "1"
    first = module._child
    assert first is not None

    def interrupted(child: Any, line: bytes, seconds: float) -> bytes:
        child.stdin.write(line)
        child.stdin.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_round_trip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        render("{{ 2 }}")
    monkeypatch.undo()
    assert first.returncode is not None
    assert render("{{ 3 }}") == "3"


def test_many_threads_share_it() -> None:
    results: dict[int, str] = {}

    def work(number: int) -> None:
        for _ in range(5):
            results[number] = render("{{ n }}", tokens={"n": number})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: str(i) for i in range(8)}


def test_where_the_system_counts_no_time_the_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HAS_CPU_TIMER", False)
    monkeypatch.setattr(module, "CPU_SECONDS", 60.0)
    monkeypatch.setattr(module, "WALL_SECONDS", 0.3)
    refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "within 0.3 s")
    monkeypatch.setattr(module, "WALL_SECONDS", 30.0)
    assert render("{{ 1 }}") == "1"


def test_a_process_that_is_forked_starts_its_own() -> None:
    code = """
import os
from headway.data.chat_template import client as renderer
from headway.data.chat_template.template import ChatTemplate
template = ChatTemplate("{{ n }}")
assert template.render([], tokens={"n": 0}) == "0"
child = os.fork()
assert (renderer._child is None) == (child == 0)
number = 1 if child else 2
for _ in range(20):
    assert template.render([], tokens={"n": number}) == str(number)
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("fine")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("fine\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("ending", ["", "os._exit(0)"])
def test_it_ends_with_us(ending: str) -> None:
    code = f"""
import atexit, os
atexit.register(lambda: print(renderer._child))  # after that of the renderer, which registers later
from headway.data.chat_template import client as renderer, template
template.ChatTemplate("").render([])
print(renderer._child.pid, flush=True)
{ending}
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    number, *rest = done.stdout.split()
    assert (rest, done.stderr) == ([] if ending else ["None"], "")

    def alive() -> bool:
        try:
            return b"sandbox" in Path(f"/proc/{number}/cmdline").read_bytes()
        except OSError:
            return False

    end = time.monotonic() + 10
    while alive() and time.monotonic() < end:
        time.sleep(0.01)
    assert not alive()


def test_nothing_of_our_environment_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    seen: dict[str, Any] = {}
    real = subprocess.Popen

    def spy(*args: Any, **options: Any) -> Any:
        seen.update(options["env"])
        return real(*args, **options)

    monkeypatch.setattr(module, "_child", None)
    monkeypatch.setattr(subprocess, "Popen", spy)
    assert render("{{ 1 }}") == "1"
    assert seen.keys() <= {"PYTHONPATH", *module.PASSED_ENVIRONMENT}
    assert module._child is not None
    module.stop(module._child)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_can_write_no_file() -> None:
    assert render("{{ 1 }}") == "1"
    assert module._child is not None
    limits = Path(f"/proc/{module._child.pid}/limits").read_text()
    assert "Max file size             0                    0" in limits
    assert f"Max address space         {module.MEMORY}" in limits
    assert os.getsid(module._child.pid) != os.getsid(0)  # an interrupt at the terminal is not for it


def test_without_jinja_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_child", None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(NotFoundError, match="jinja2") as caught:
        render("x")
    assert (caught.value.code, caught.value.hint) == ("F003", "pip install jinja2")


def test_importing_it_starts_and_imports_nothing() -> None:
    code = (
        "import sys, headway.data.chat_template.template; from headway.data.chat_template import client as renderer\n"
    )
    code += "print('jinja2' in sys.modules, renderer._child)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False None\n"


# --- templates in folders ------------------------------------------------------------------------


def test_a_template_is_read_from_either_place(tmp_path: Path) -> None:
    tokenizer().save(tmp_path)
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    for value, source in ((None, None), ("S", "S"), (named, "D"), ("", "")):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
        found = parse_template(load_tokenizer(tmp_path).config.get("chat_template"))
        assert (None if found is None else found.source) == source
    (tmp_path / "chat_template.jinja").write_text("Jé")
    found = parse_template(load_tokenizer(tmp_path).config.get("chat_template"))
    assert found is not None and found.source == "Jé"


@pytest.mark.parametrize(
    ("value", "words"),
    [(3, "neither"), (["x"], "neither"), ([{"name": "a"}], "neither"), ({"a": 1}, "neither"), (True, "neither")],
)
def test_entries_that_are_no_template(value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_template(value)


def test_named_templates_without_a_default() -> None:
    with pytest.raises(ConfigError, match="it has rag, 'x\\\\x1b'"):
        parse_template([{"name": "rag", "template": ""}, {"name": "x\x1b", "template": ""}])
    with pytest.raises(ConfigError, match="it has none"):
        parse_template([])


def test_files_that_are_no_template(tmp_path: Path) -> None:
    tokenizer().save(tmp_path)
    path = tmp_path / "chat_template.jinja"
    path.write_bytes(b"caf\xe9")
    with pytest.raises(DamagedError, match="at byte 3"):
        load_tokenizer(tmp_path)
    for content in (b"x" * (SOURCE_LIMIT + 1), "é".encode() * SOURCE_LIMIT):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            parse_template(load_tokenizer(tmp_path).config["chat_template"])
        assert caught.value.code == "D008"


def test_a_saved_tokenizer_keeps_it(tmp_path: Path) -> None:
    tokenizer().save(tmp_path / "one")
    (tmp_path / "one" / "chat_template.jinja").write_text(LLAMA3)
    loaded = load_tokenizer(tmp_path / "one")
    loaded.save(tmp_path / "two")
    template = parse_template(load_tokenizer(tmp_path / "two").config.get("chat_template"))
    assert template is not None
    assert template.source == LLAMA3
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path / "two")
    assert theirs.chat_template == LLAMA3
    assert encode_chat(loaded, template, CHAT)[0] == theirs.apply_chat_template(CHAT)["input_ids"]


# --- many conversations -------------------------------------------------------------------------


def conversation(*turns: str) -> list[Message]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]


@pytest.mark.parametrize("source", [CHATML, LLAMA2])
@given(
    st.lists(st.lists(st.text("ab ", min_size=1, max_size=3), min_size=1, max_size=5), max_size=7), st.integers(1, 4)
)
@settings(max_examples=10, deadline=None)
def test_many_conversations_are_encoded_as_each_alone(source: str, said: list[list[str]], together: int) -> None:
    """Whatever groups they are rendered in; LLAMA2 refuses those with a wrong role."""
    tokenizer, template = special_tokenizer(), ChatTemplate(source)
    talks = [conversation(*one) for one in said]
    for talk in talks[::3]:
        talk[0]["role"] = "narrator"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.data.chat_template.template.BATCH", together)
        found = encode_chats(tokenizer, template, talks)
    assert len(found) == len(talks)
    for got, talk in zip(found, talks, strict=True):
        try:
            assert got == encode_chat(tokenizer, template, talk)
        except DataError as error:
            assert isinstance(got, DataError) and (got.code, got.message) == (error.code, error.message)


def special_tokenizer() -> Tokenizer:
    return train_tokenizer("bytes", [], special=("<s>", "</s>", "<|im_start|>", "<|im_end|>"))


def test_few_exchanges_for_many_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    whole = ChatTemplate.render_all

    def counted(self: ChatTemplate, asked: Any) -> Any:
        sizes.append(len(asked))
        return whole(self, asked)

    monkeypatch.setattr(ChatTemplate, "render_all", counted)
    talks = [conversation("a", "b")] * 150
    assert len(encode_chats(special_tokenizer(), ChatTemplate(CHATML), talks)) == 150
    assert sizes == [3 * 64, 3 * 64, 3 * 22]
    sizes.clear()
    talks[70] = []
    found = encode_chats(special_tokenizer(), ChatTemplate(CHATML), talks)
    assert [i for i, one in enumerate(found) if isinstance(one, DataError)] == [70]
    assert len(sizes) < 12, "a bad one costs some exchanges, not one for each"

"""Tokenizer files made to harm: each ends in an error with a code, soon and without much memory; real ones pass."""

from __future__ import annotations

import base64
import copy
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from headway.data.tokenizers.bounds import MAX_GROWTH, check_tokenizer, growth, growth_of
from headway.data.tokenizers.charsmap import charsmap_growth
from headway.data.tokenizers.tokenizer import load_tokenizer
from headway.data.tokenizers.train import KINDS, train_tokenizer
from headway.errors import DamagedError, DataError

SECONDS, MEMORY = 2, 300 << 20
Files = dict[str, Any]


def word_level() -> dict[str, Any]:
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made: dict[str, Any] = json.loads(backend.to_str())
    return made


def changed(**parts: Any) -> Files:
    return {"tokenizer.json": word_level() | parts}


def modelled(**parts: Any) -> Files:
    return changed(model=word_level()["model"] | parts)


def added(*tokens: dict[str, Any]) -> Files:
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return changed(added_tokens=[usual | token for token in tokens])


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def chain(kind: str, steps: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: steps}


def nested(depth: int) -> bytes:
    """Written by hand: json.dumps itself cannot go so deep."""
    opened = b'{"type":"Sequence","normalizers":[' * depth + b'{"type":"NFC"}' + b"]}" * depth
    return json.dumps(word_level() | {"normalizer": "HERE"}).encode().replace(b'"HERE"', opened)


def template(single: list[Any], **special: Any) -> Files:
    tokens = {name: {"id": name, "ids": ids, "tokens": [name] * len(ids)} for name, ids in special.items()}
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    around = {"type": "TemplateProcessing", "single": single, "pair": text, "special_tokens": tokens}
    return changed(post_processor=around)


def table(text: bytes, cyclic: bool = False) -> bytes:
    """A table of characters that writes `text` for each letter a; or one whose tree has no end."""
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ ord("a")] = (1 << 8) | ord("a") | ((0 if cyclic else 128) << 10)
    units[256 ^ ord("a") ^ 128] = 1 << 31
    return struct.pack("<I512I", 2048, *units) + text + b"\0"


def precompiled(raw: bytes) -> Files:
    return changed(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()})


def message(*fields: tuple[int, bytes]) -> bytes:
    """A protobuf message of fields that are bytes."""

    def number(value: int) -> bytes:
        parts = []
        while value > 127:
            parts.append(value & 127 | 128)
            value >>= 7
        return bytes([*parts, value])

    return b"".join(number(key << 3 | 2) + number(len(raw)) + raw for key, raw in fields)


def pieces(*names: bytes) -> bytes:
    unknown = message((1, message((1, b"<unk>")) + bytes([3 << 3, 2])))
    return unknown + b"".join(message((1, message((1, name)))) for name in names)


STRING, LETTER = {"String": "a"}, {"Regex": "a"}
REGEXES = {
    "nested repeat": "(a+)+$",
    "alternatives": "(a|a)*$",
    "optional": "a?" * 30 + "a" * 30,
    "back": r"(a+)\1+\1+\1+$",
    "recursive": r"(?<x>a\g<x>?\g<x>?)+$",
    "many repeats": r"a*a*a*a*a*a*a*b",
    "counted": "a{100000}",
    "counted twice": "((a{1000}){1000}){1000}",
    "long": "a|" * 500_000,
    "deep": "(" * 5000 + "a" + ")" * 5000,
    "word breaks": r"^(\w+\s?)*$",
}
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
HOSTILE: dict[str, Files] = {
    **{f"id {i}": modelled(vocab={"a": 0, "<unk>": i}) for i in (2**32 - 1, 2**31, 5_000_000, 2**70, -1, 0.5, None)},
    "added id": added({"id": 2**32 - 1, "content": "<x>"}),
    "replace chain": changed(normalizer=chain("normalizers", [replaced(STRING, "aa")] * 33)),
    "replace with much": changed(normalizer=chain("normalizers", [replaced(STRING, "a" * 1000)] * 3)),
    "replace with very much": changed(normalizer=replaced(STRING, "a" * 3_000_000)),
    "replace nothing": changed(normalizer=chain("normalizers", [replaced({"String": ""}, "a" * 900)] * 2)),
    "replace empty matches": changed(normalizer=chain("normalizers", [replaced({"Regex": "(?=.)"}, "a" * 300)] * 4)),
    "decoder chain": changed(decoder=chain("decoders", [replaced(STRING, "aa")] * 33)),
    "decoder with much": changed(decoder=chain("decoders", [replaced(STRING, "a" * 1000)] * 3)),
    "long added token": added({"id": 3, "content": "x" * 3_000_000}),
    "many added tokens": added(*({"id": 3 + i, "content": f"<{i}>"} for i in range(70_000))),
    "much added text": added(*({"id": 3 + i, "content": f"{i}" + "x" * 1000} for i in range(2000))),
    "nested deeply": {"tokenizer.json": nested(65_536)},
    "nested as json may be": {"tokenizer.json": nested(25)},
    "nested little": {"tokenizer.json": nested(6)},
    "many steps": changed(normalizer=chain("normalizers", [{"type": "NFC"}] * 5000)),
    "many splits": changed(pre_tokenizer=chain("pretokenizers", [{"type": "Whitespace"}] * 5000)),
    "bytes of bytes": changed(
        pre_tokenizer=chain(
            "pretokenizers",
            [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}] * 30,
        )
    ),
    "bytes of bytes before": changed(normalizer=chain("normalizers", [{"type": "ByteLevel"}] * 30)),
    "long prefix": changed(normalizer={"type": "Prepend", "prepend": "a" * 1_000_000}),
    **{f"split {n}": changed(pre_tokenizer={"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated",
                                            "invert": False}) for n, r in REGEXES.items()},
    **{f"normalize {n}": changed(normalizer=replaced({"Regex": r}, "")) for n, r in list(REGEXES.items())[:3]},
    **{f"decode {n}": changed(decoder=replaced({"Regex": r}, "")) for n, r in list(REGEXES.items())[:3]},
    "words without end": modelled(type="WordPiece", max_input_chars_per_word=2**40, continuing_subword_prefix="##"),
    "long subword prefix": modelled(
        type="WordPiece", max_input_chars_per_word=100, continuing_subword_prefix="#" * 1_000_000
    ),
    "text many times": template([{"Sequence": {"id": "A", "type_id": 0}}] * 60),
    "template without end": template([{"SpecialToken": {"id": "<unk>", "type_id": 0}}] * 9000, **{"<unk>": [2]}),
    "many ids": template([{"SpecialToken": {"id": "x", "type_id": 0}}], x=[2] * 500_000),
    "ids there are not": template([{"SpecialToken": {"id": "x", "type_id": 0}}], x=[2**32 - 1]),
    "segments": template([{"Sequence": {"id": "A", "type_id": 2**32 - 1}}]),
    "marks there are not": changed(post_processor={"type": "RobertaProcessing", "sep": ["s", 2**32 - 1],
                                                   "cls": ["c", 0], "trim_offsets": True, "add_prefix_space": False}),
    "table of nothing": precompiled(b"no table at all"),
    "table that grows": precompiled(table(b"a" * 100_000)),
    "table of bad sizes": precompiled(struct.pack("<I", 2**31) + b"x" * 100),
    "table that points away": precompiled(table(b"")[:-1]),
    "many values": {"tokenizer.json": b'{"model": [' + b"[]," * 3_000_000 + b"0]}"},
    "many words": {"tokenizer.json": b'{"model": [' + b'"a",' * 3_000_000 + b"0]}"},
    "brackets": {"tokenizer.json": b'{"model": ' + b"[" * 1_000_000},
    "twice": {"tokenizer.json": b'{"model": 1, "model": 2}'},
    "not a number": {"tokenizer.json": b'{"model": NaN}'},
    "a model that is none": changed(model=[1, 2]),
    "a vocabulary that is none": modelled(vocab=[1, 2]),
    "a long token": modelled(vocab={"a" * 3_000_000: 0, "<unk>": 1}),
    "a long merge": changed(model=BPE | {"merges": [["a" * 3_000_000, "b"]]}),
    "unknown out of reach": changed(model={"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}),
    "a large file": {"tokenizer.json": 64_000_001},
    "a large vocabulary": {"vocab.txt": 64_000_001},
    "a long line": {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]\n" + b"a" * 3_000_000},
    "a large template": {"vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "chat_template.jinja": 64_000_001},
    "far ids": {"vocab.json": {"a": 0, "b": 2**31 - 1}, "merges.txt": b"a b"},
    "merges of nothing": {"vocab.json": {"a": 0, "b": 1}, "merges.txt": b"a b\n" * 1_000_000},
    "many in the config": {
        "vocab.txt": b"[UNK]\n[CLS]\n[SEP]",
        "tokenizer_config.json": {"added_tokens_decoder": {str(3 + i): {"content": f"<{i}>"} for i in range(70_000)}},
    },
    "long in the config": {
        "vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "tokenizer_config.json": {"unk_token": "x" * 3_000_000},
        "added_tokens.json": {"x" * 3_000_000: 3},
    },
    "deep in the map": {
        "vocab.txt": b"[UNK]\n[CLS]\n[SEP]", "special_tokens_map.json": b'{"unk_token":' + b"[" * 10**6
    },
    "many pieces": {"tokenizer.model": b"".join(message((1, message((1, b"a")))) for _ in range(1_100_000))},
    "many fields": {"tokenizer.model": message((9, b"")) * 2_000_000},
    "many settings": {"tokenizer.model": pieces(b"a") + message((2, message((9, b"")) * 100_000))},
    "settings in parts": {"tokenizer.model": pieces(b"a") + message((2, message((9, b"")))) * 900_000},
    "a long piece": {"tokenizer.model": pieces(b"a" * 3_000_000)},
    "a large table": {"tokenizer.model": pieces(b"a") + message((3, message((2, b"x" * 9_000_000))))},
    "a growing table": {"tokenizer.model": pieces(b"a") + message((3, message((2, table(b"a" * 100_000)))))},
    "a large model": {"tokenizer.model": 100_000_001},
}  # fmt: skip

CHILD = """
import os, resource, signal, sys, time
from pathlib import Path
from headway.data.tokenizers.tokenizer import load_tokenizer
from headway.errors import HeadwayError

def attempt(folder):
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[2]))  # of the processor's time: a busy machine is no defect
    try:
        tokenizer = load_tokenizer(folder)
        ids = tokenizer.encode("a b " * 100 + "a" * 40 + "b", "b a").ids
        tokenizer.decode(ids)
    except HeadwayError as error:
        return error.code
    return f"read, {len(ids)} ids"

import tokenizers.models  # what is imported counts for no file
tokenizers.Tokenizer(tokenizers.models.BPE()).encode("")
for folder in sorted(Path(sys.argv[1]).iterdir()):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            print(f"{folder.name}: {attempt(folder)}", flush=True)
        except BaseException as error:
            print(f"{folder.name}: {type(error).__name__} {str(error)[:100]}", flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print(f"{folder.name}: signal {os.WTERMSIG(status)}")
"""


def size_of(files: Files) -> int:
    return max(content if isinstance(content, int) else len(str(content)) for content in files.values())


def write(folder: Path, files: Files) -> None:
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        if isinstance(content, int):  # a file of that many zeros, which take no room
            with path.open("wb") as file:
                file.truncate(content)
        else:
            path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="measures memory as Linux does")
@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_hostile_files_end_in_an_error(large: bool, tmp_path: Path) -> None:
    """In processes of their own, under a limit of memory and of time; none may crash, hang, or be read."""
    chosen = [name for name, files in HOSTILE.items() if large == (size_of(files) > 1_000_000)]
    names = {f"{number:03d}": name for number, name in enumerate(chosen)}
    for number, name in names.items():
        write(tmp_path / number, HOSTILE[name])
    words = [sys.executable, "-c", CHILD, str(tmp_path), str(SECONDS), str(MEMORY)]
    limited = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | limited, timeout=600, check=True)
    said = {names[line.partition(": ")[0]]: line.partition(": ")[2] for line in done.stdout.splitlines()}
    assert said.keys() == set(chosen) and len(said) >= 20
    assert {name: outcome for name, outcome in said.items() if outcome not in ("X001", "C001", "C002", "F005")} == {}


REAL_WORDS = {
    "gpt-4": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "possessive": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
    "sets in sets": r"[\p{Han}]+|[\p{Lu}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?",
    "bloom": " ?[^(\\s|[.,!?…。，、।۔،])]+",
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "digits from the right": r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
    "signs": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
}
"""How published tokenizers cut words."""


@pytest.mark.parametrize("name", REAL_WORDS)
def test_patterns_of_published_tokenizers_pass(name: str) -> None:
    backend = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    split = pre_tokenizers.Split(Regex(REAL_WORDS[name]), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    check_tokenizer(json.loads(backend.to_str()))


def real(tokens: int, more: int, merges: int) -> dict[str, Any]:
    """A tokenizer of the size of a published one."""
    made = word_level()
    names = [f"▁piece{i}" for i in range(tokens)]
    vocab = {name: i for i, name in enumerate(names)}
    made["model"] = {"type": "BPE", "vocab": vocab, "merges": [[names[i % tokens], "a"] for i in range(merges)]}
    made["added_tokens"] = [{"id": tokens + i, "content": f"<unused{i}>"} for i in range(more)]
    steps = [replaced({"String": " "}, "▁"), {"type": "Prepend", "prepend": "▁"}, {"type": "NFKC"}]
    return made | {"normalizer": chain("normalizers", steps)}


@pytest.mark.parametrize(
    ("tokens", "more", "merges"),
    [(50_257, 1, 50_000), (128_000, 256, 280_147), (262_144, 6415, 514_906)],
)
def test_sizes_of_published_tokenizers_pass(tokens: int, more: int, merges: int, tmp_path: Path) -> None:
    made = real(tokens, more, merges)
    check_tokenizer(made)
    raw = json.dumps(made, ensure_ascii=False)
    from headway.data.tokenizers.bounds import TOKENIZER_VALUES

    assert raw.count(",") + raw.count("[") + raw.count("{") < TOKENIZER_VALUES


PUBLISHED: dict[str, Callable[[], Any]] = {
    "bert": lambda: normalizers.BertNormalizer(),
    "albert": lambda: normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
         normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")]
    ),
    "llama": lambda: normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    "clip": lambda: normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                          normalizers.Lowercase()]),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_normalizers_of_published_tokenizers_pass(name: str) -> None:
    assert 1 <= growth_of(PUBLISHED[name]()) <= MAX_GROWTH


@pytest.mark.parametrize("kind", KINDS)
def test_own_tokenizers_pass(kind: str, tmp_path: Path) -> None:
    text = ["the cat sat on the mat in Zürich"] * 3
    sizes = {"bpe": 300, "wordpiece": 120, "unigram": 300}
    made = train_tokenizer(kind, text, sizes.get(kind, 0), lower=kind != "bytes")
    check_tokenizer(json.loads(made.backend.to_str()))
    made.save(tmp_path)
    assert load_tokenizer(tmp_path).encode(text[0]) == made.encode(text[0])


def test_growth_is_what_a_chain_really_does() -> None:
    """No text grows more than is said of a chain, and some text grows as much."""
    cases: list[tuple[list[Any], str]] = [
        ([normalizers.Replace("a", "bcd"), normalizers.Replace("b", "xy")], "a" * 100),
        ([normalizers.Replace("ab", "xyz")], "ab" * 50),
        ([normalizers.Replace(Regex("a{2,}"), "xyz")], "aa b " * 20),
        ([normalizers.Replace(Regex("(?=a)"), "xy")], "a" * 50),
        ([normalizers.NFKD()], "\ufdfa" * 30),
        ([normalizers.NFD()], "\u0390\U0001d160" * 30),
        ([normalizers.Lowercase()], "\u0130" * 30),
        ([normalizers.ByteLevel()], "é " * 30),
        ([normalizers.BertNormalizer()], "中İ" * 30),
        ([normalizers.Precompiled(table(b"xyz"))], "a" * 50),
    ]
    for steps, text in cases:
        normalizer = normalizers.Sequence(steps)
        grown = len(normalizer.normalize_str(text).encode()) / len(text.encode())
        assert 1 < grown <= growth_of(normalizer), steps
    assert growth([replaced(STRING, "bcd"), replaced({"String": "b"}, "xy")]) == 6
    assert charsmap_growth(table(b"xyz")) == 3 and charsmap_growth(b"") == 1


def test_long_texts_that_grow_are_refused_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Within the bounds of a chain, and yet too much for a long text; one that does not grow is read as ever."""
    from headway.data.tokenizers import tokenizer as module

    write(tmp_path / "made", changed(normalizer=replaced(STRING, "a" * 200)))
    monkeypatch.setattr(module, "UNCHECKED_CHARACTERS", 1000)
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10_000)
    reader = load_tokenizer(tmp_path / "made")
    assert len(reader.encode("b " * 5000).ids) == 5000
    assert len(reader.encode("a " * 100).ids) == 100
    with pytest.raises(DataError) as caught:
        reader.ids(["a " * 5000])
    assert caught.value.code == "D001"


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "added_tokens"])
@pytest.mark.parametrize("value", [1, "text", [1], [[]], {"type": 5}, {"type": "Sequence", "normalizers": 5}, True])
def test_parts_of_any_type_are_an_error(part: str, value: Any, tmp_path: Path) -> None:
    write(tmp_path / "made", {"tokenizer.json": copy.deepcopy(word_level()) | {part: value}})
    with pytest.raises(DamagedError) as caught:
        load_tokenizer(tmp_path / "made")
    assert caught.value.code == "X001"


def test_around_is_checked_in_chains_too() -> None:
    made = Tokenizer(models.WordLevel({"a": 0, "<s>": 1}, unk_token="a"))
    steps = [processors.ByteLevel(), processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])]
    made.post_processor, made.decoder = processors.Sequence(steps), decoders.Sequence([decoders.Fuse()])
    found = json.loads(made.to_str())
    check_tokenizer(found)
    found["post_processor"]["processors"][1]["special_tokens"]["<s>"]["ids"] = [7]
    with pytest.raises(ValueError, match="only 2 ids"):
        check_tokenizer(found)

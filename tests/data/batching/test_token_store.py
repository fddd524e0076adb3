"""The token cache: the ids of `tokenize`, never believed when damaged, never needed."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from headway.data.batching import token_store as module
from headway.data.batching.token_store import TokenStore, cache_folder, open_store, prune
from headway.data.batching.windows import line_chunks, tokenize
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError

SAMPLE = "a line, é 漢\nanother\r\nand the end of it"
TOKENIZERS = {"bytes": train_tokenizer("bytes", [SAMPLE]), "bpe": train_tokenizer("bpe", [SAMPLE] * 4, 280)}
BYTES = TOKENIZERS["bytes"]
DOCUMENTS = ["first\n", "", "second é\nof two lines", "third"]


def never() -> list[str]:
    raise AssertionError("the documents were read, and need not be")


def refuse(message: str) -> None:
    raise AssertionError(f"a warning: {message}")


opened = partial(open_store, key="k", end=7, warn=refuse)


def content(store: TokenStore) -> tuple[list[list[int]], int]:
    parts = np.split(store.ids, store.starts[1:-1]) if len(store.starts) > 1 else []
    return [part.tolist() for part in parts], store.byte_count


def expected(tokenizer: Tokenizer, documents: list[str], end: int | None, chunk: int) -> tuple[list[list[int]], int]:
    last = [] if end is None else [end]
    ids = [[*tokenize(tokenizer, text, chunk).tolist(), *last] for text in documents]
    return ids, sum(len(text.encode()) for text in documents)


def is_memory(store: TokenStore) -> bool:
    return store.path is None and not isinstance(store.ids, np.memmap)


texts = st.lists(st.text(st.sampled_from("ab é漢\n\r\x85"), max_size=20), max_size=12)


@given(texts, st.sampled_from(sorted(TOKENIZERS)), st.none() | st.integers(0, 255), st.integers(1, 9))
@settings(max_examples=40)
def test_a_store_has_the_ids_of_tokenize_fresh_cached_or_in_memory(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], kind: str, end: int | None, chunk: int
) -> None:
    tokenizer = TOKENIZERS[kind]
    wanted = expected(tokenizer, documents, end, chunk)
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "line_chunks", partial(line_chunks, chunk=chunk))
        patch.setattr(module, "GROUP_CHARACTERS", 11)
        patch.setattr(module, "BLOCK", 16)
        fresh = opened(lambda: documents, tokenizer, end=end, cache=cache)
        assert content(fresh) == wanted
        assert content(opened(never, tokenizer, end=end, cache=cache)) == wanted
        (cache / "file").touch()
        memory = opened(lambda: documents, tokenizer, end=end, cache=cache / "file", warn=lambda message: None)
        assert is_memory(memory) and not is_memory(fresh)
        assert content(memory) == wanted
        for store in (fresh, memory):
            assert (store.ids.dtype, store.starts.dtype) == (np.uint16, np.int64)
            with pytest.raises(ValueError, match="read-only"):
                store.starts[0] = 1
            assert not store.ids.flags.writeable


@given(st.text(st.sampled_from("ab\n\r\v\x1c\x1f\x85\u2028"), max_size=30), st.integers(1, 9))
def test_chunks_end_with_the_first_line_to_reach_their_size(text: str, chunk: int) -> None:
    wanted = [""]
    for line in text.splitlines(keepends=True):
        if len(wanted[-1]) >= chunk:
            wanted.append("")
        wanted[-1] += line
    found = list(line_chunks(text, chunk))
    assert [part for part in found if part] == [part for part in wanted if part]
    assert found  # a text without a character has a chunk, too


def test_documents_are_iterated_not_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_CHARACTERS", 100)
    alive: list[int] = []
    done: list[int] = []

    def documents() -> Iterator[str]:
        for number in range(50):
            alive.append(number * 51 - (done[-1] if done else 0))  # bytes given out and not yet written
            yield "x" * 50 + "\n"
        for _ in range(500):
            yield ""  # no characters, and still not gathered for ever

    @contextmanager
    def counted(label: str, unit: str) -> Iterator[Callable[[int], None]]:
        assert unit == "bytes"
        yield lambda size: done.append((done[-1] if done else 0) + size)

    monkeypatch.setattr(module, "bar", counted)
    store = opened(documents, BYTES, cache=tmp_path)
    assert len(store.starts) == 551
    assert max(alive) <= 3 * 51
    assert done == sorted(done) and done[-1] == store.byte_count == 50 * 51
    assert len(done) >= 25 + 5  # two of the first kind to a group, a hundred of the second


def test_another_content_tokenizer_or_end_is_another_store(tmp_path: Path) -> None:
    variants: list[tuple[Tokenizer, str, int | None]] = [
        (BYTES, "k", 7), (BYTES, "other", 7), (BYTES, "k", 8), (BYTES, "k", None), (TOKENIZERS["bpe"], "k", 7)
    ]  # fmt: skip
    stores = [opened(lambda: DOCUMENTS, t, key=key, end=end, cache=tmp_path) for t, key, end in variants]
    assert len({store.path for store in stores}) == len(list(tmp_path.iterdir())) == len(variants)
    for store, (tokenizer, key, end) in zip(stores, variants, strict=True):
        again = opened(never, tokenizer, key=key, end=end, cache=tmp_path)
        assert (again.path, content(again)) == (store.path, content(store))


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_a_tokenizer_that_was_saved_and_loaded_finds_its_store(kind: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(kind, [SAMPLE] * 4, 280 if kind == "bpe" else 0, special=("<|end|>",))
    opened(lambda: DOCUMENTS, tokenizer, cache=tmp_path / "cache")
    tokenizer.save(tmp_path / "folder")
    opened(never, load_tokenizer(tmp_path / "folder"), cache=tmp_path / "cache")


@pytest.mark.parametrize(("size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_are_as_wide_as_the_vocabulary_needs(size: int, dtype: type, tmp_path: Path) -> None:
    backend = Backend(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(backend)
    store = opened(lambda: [f"w3 w{size - 1}"], tokenizer, end=size - 1, cache=tmp_path)
    assert store.ids.dtype == dtype
    assert content(opened(never, tokenizer, end=size - 1, cache=tmp_path))[0] == [[3, size - 1, size - 1]]


def damaged(raw: bytes, kind: str, place: int) -> bytes:
    if kind == "cut":
        return raw[:place]
    if kind == "grown":
        return raw + bytes(1 + place % 9)
    if kind == "zeroed":  # the end never reached the disk
        return raw[:place] + bytes(len(raw) - place)
    return raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :]


@given(st.sampled_from(["flipped", "cut", "grown", "zeroed"]), st.floats(0, 1, exclude_max=True))
@settings(max_examples=40)
def test_a_damaged_file_is_built_again(tmp_path_factory: pytest.TempPathFactory, kind: str, share: float) -> None:
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 16)
        path = opened(lambda: DOCUMENTS, BYTES, cache=cache).path
        assert path is not None
        raw = path.read_bytes()
        path.write_bytes(damaged(raw, kind, int(share * len(raw))))
        calls: list[int] = []
        store = opened(lambda: calls.append(1) or DOCUMENTS, BYTES, cache=cache)
        assert calls == [1]
        assert content(store) == expected(BYTES, DOCUMENTS, 7, 1 << 16)
        assert path.read_bytes() == raw and list(cache.iterdir()) == [path]


def test_every_bit_counts(tmp_path: Path) -> None:
    path = opened(lambda: DOCUMENTS, BYTES, cache=tmp_path).path
    assert path is not None
    raw = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(raw):
            file.seek(place)
            file.write(bytes([byte ^ 1 << place % 8]))
            assert module._open(path) is None, place
            file.seek(place)
            file.write(bytes([byte]))
    assert module._open(path) is not None


def test_a_file_under_the_name_of_another_is_not_believed(tmp_path: Path) -> None:
    one, other = (opened(lambda: ["text"], BYTES, key=name, cache=tmp_path).path for name in ("one", "other"))
    assert one is not None and other is not None
    good = other.read_bytes()
    other.write_bytes(one.read_bytes())
    opened(lambda: ["text"], BYTES, key="other", cache=tmp_path)
    assert other.read_bytes() == good


def test_a_header_sealed_by_a_stranger_is_not_believed(tmp_path: Path) -> None:
    path = opened(lambda: DOCUMENTS, BYTES, cache=tmp_path).path
    assert path is not None
    for header in ({"name": path.stem}, {"name": path.stem, "tokens": "x", "item": 2, "documents": 1}):
        path.write_bytes(module._header_bytes(header))
        assert content(opened(lambda: DOCUMENTS, BYTES, cache=tmp_path))[1] == sum(len(t.encode()) for t in DOCUMENTS)


def test_of_a_large_file_some_blocks_are_verified_and_the_rest_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(module, "VERIFY_ALL_BELOW", 0)
    monkeypatch.setattr(module, "VERIFIED_BLOCKS", 1)
    text = "0123456789abcdef" * 4  # eight blocks of ids, and one with what is left
    path = opened(lambda: [text], BYTES, cache=tmp_path).path
    assert path is not None
    raw = path.read_bytes()

    def damage_seen(place: int) -> bool:
        calls: list[int] = []
        path.write_bytes(damaged(raw, "flipped", place))
        opened(lambda: calls.append(1) or [text], BYTES, cache=tmp_path)
        return bool(calls)

    state = random.getstate()
    seen = [damage_seen(module.HEADER + 3 * 16) for _ in range(80)]
    assert 1 <= sum(seen) <= 40  # one in nine
    for place in (20, len(raw) - 9 * 32 - 16, len(raw) - 9 * 32 - 1, len(raw) - 9 * 32, len(raw) - 1):
        assert damage_seen(place), place
    assert random.getstate() == state
    monkeypatch.setattr(module, "VERIFIED_BLOCKS", 9)
    assert all(damage_seen(place) for place in range(module.HEADER, module.HEADER + 2 * len(text), 5))


def full_disk(patch: pytest.MonkeyPatch, cache: Path) -> Path:
    def no_space(handle: int) -> None:
        raise OSError(28, "No space left on device")

    patch.setattr(os, "fsync", no_space)
    return cache


def file_for_folder(patch: pytest.MonkeyPatch, cache: Path) -> Path:
    cache.write_bytes(b"")
    return cache


def no_home(patch: pytest.MonkeyPatch, cache: Path) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HEADWAY_CACHE", "XDG_CACHE_HOME"):
        patch.delenv(name, raising=False)
    patch.setattr(Path, "home", homeless)


def bad_disk(patch: pytest.MonkeyPatch, cache: Path) -> Path:
    patch.setattr(module, "_open", lambda path: None)
    return cache


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (full_disk, "No space"),
        (file_for_folder, "File exists"),
        (no_home, "home directory"),
        (bad_disk, "is not what was written"),
    ],
)
def test_without_a_cache_the_ids_are_in_memory(
    trouble: Callable[[pytest.MonkeyPatch, Path], Path | None], why: str, tmp_path: Path
) -> None:
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        cache = trouble(patch, tmp_path / "cache")
        store = opened(lambda: DOCUMENTS, BYTES, cache=cache, warn=told.append)
        with pytest.warns(RuntimeWarning, match=why) as caught:
            open_store(lambda: DOCUMENTS, BYTES, key="k", end=7, cache=cache)
    assert is_memory(store)
    assert content(store) == expected(BYTES, DOCUMENTS, 7, 1 << 16)
    assert len(told) == 1 and why in told[0]
    assert caught[0].filename == __file__
    assert not list(tmp_path.rglob("*.partial-*"))


def test_a_cache_that_others_wrote_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ours(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    opened(lambda: DOCUMENTS, BYTES, cache=tmp_path)
    monkeypatch.setattr(os, "utime", not_ours)
    assert not is_memory(opened(never, BYTES, cache=tmp_path))


def test_a_disk_that_fills_up_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_CHARACTERS", 1000)
    monkeypatch.setattr(module, "BLOCK", 1 << 10)
    documents, told = ["x" * 999] * 40, []
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        store = opened(lambda: documents, BYTES, cache=tmp_path, warn=told.append)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert is_memory(store) and len(store.ids) == 40_000
    assert len(told) == 1 and "too large" in told[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [OSError("the documents are gone"), RuntimeError("no such row"), KeyboardInterrupt("stop")]
)
def test_trouble_with_the_documents_is_not_the_cache_s(error: BaseException, tmp_path: Path) -> None:
    def documents() -> Iterator[str]:
        yield "x" * (1 << 22)
        raise error

    with pytest.raises(type(error), match=str(error)):
        opened(documents, BYTES, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_half_a_surrogate_pair_is_an_error_of_the_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="surrogate"):
        opened(lambda: ["good", "bad \ud800"], BYTES, cache=tmp_path)


def test_an_end_that_is_no_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="end = 256"):
        opened(never, BYTES, end=256, cache=tmp_path)


def test_two_at_once_are_both_right(tmp_path: Path) -> None:
    inner: list[TokenStore] = []

    def documents() -> Iterator[str]:
        yield DOCUMENTS[0]
        inner.append(opened(lambda: DOCUMENTS, BYTES, cache=tmp_path))  # another is faster
        yield from DOCUMENTS[1:]

    store = opened(documents, BYTES, cache=tmp_path)
    assert content(store) == content(inner[0]) == expected(BYTES, DOCUMENTS, 7, 1 << 16)
    assert list(tmp_path.iterdir()) == [store.path]


def test_what_a_killed_build_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    path = opened(lambda: DOCUMENTS, BYTES, cache=tmp_path).path
    assert path is not None
    left = path.with_name(f"{path.name}.partial-0123456789abcdef")
    path.rename(left)
    assert content(opened(lambda: DOCUMENTS, BYTES, cache=tmp_path)) == expected(BYTES, DOCUMENTS, 7, 1 << 16)
    assert left.exists()  # perhaps somebody is still writing
    os.utime(left, (0, time.time() - module.STALE_SECONDS - 60))
    opened(lambda: DOCUMENTS, BYTES, key="other", cache=tmp_path)
    assert not left.exists() and path.exists()


def stores(folder: Path, sizes: dict[str, int]) -> list[Path]:
    """Files of these sizes, each used a minute after the one before."""
    paths = []
    for number, (name, size) in enumerate(sizes.items()):
        paths.append(folder / name)
        paths[-1].write_bytes(bytes(size))
        os.utime(paths[-1], (0, time.time() - 600 + 60 * number))
    return paths


@pytest.mark.parametrize(
    ("limit", "left"), [(1000, "abc"), (60, "abc"), (59, "bc"), (50, "bc"), (49, "c"), (30, "c"), (29, "c"), (0, "c")]
)
def test_the_least_recently_used_go(limit: int, left: str, tmp_path: Path) -> None:
    stores(tmp_path, {"a.tokens": 10, "b.tokens": 20, "c.tokens": 30})
    (tmp_path / "notes.txt").write_bytes(bytes(5000))
    os.utime(tmp_path / "notes.txt", (0, 0))
    prune(limit, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.tokens" for name in left] + ["notes.txt"]


def test_opening_is_using_and_building_prunes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    kept = opened(lambda: DOCUMENTS, BYTES).path
    assert kept is not None and kept.parent == cache_folder() == tmp_path / "tokens"
    os.utime(kept, (0, 0))
    (unused,) = stores(kept.parent, {"unused.tokens": 100})
    opened(never, BYTES)
    monkeypatch.setattr(prune, "__defaults__", (2 * kept.stat().st_size + 50, None, ".tokens"))
    new = opened(lambda: DOCUMENTS, BYTES, key="other").path
    assert sorted(kept.parent.iterdir()) == sorted([kept, new]) and not unused.exists()
    prune(0)
    assert list(kept.parent.iterdir()) == [new]
    prune(0, tmp_path / "nowhere")


def test_the_cache_is_where_the_user_s_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADWAY_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value, wanted in (
        ("HOME", "/h", "/h/.cache/headway/tokens"),
        ("XDG_CACHE_HOME", "/x", "/x/headway/tokens"),
        ("HEADWAY_CACHE", "/c", "/c/tokens"),
    ):
        monkeypatch.setenv(name, value)
        assert cache_folder() == Path(wanted)


def test_documents_begin_as_prompts_do(tmp_path: Path) -> None:
    """Each once, however many chunks it is read in; another beginning is another store."""
    tokenizer, texts = train_tokenizer("bytes", [], special=("<s>",)), ["ab\n" * 3, "", "c"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "line_chunks", partial(line_chunks, chunk=4))
        patch.setattr(module, "GROUP_CHARACTERS", 5)
        plain = open_store(lambda: texts, tokenizer, key="k", end=256, cache=tmp_path)
        store = open_store(lambda: texts, tokenizer, key="k", end=256, begin=(256, 7), cache=tmp_path)
    rows = [store.ids[a:b].tolist() for a, b in pairwise(store.starts)]
    assert rows == [[256, 7, *text.encode(), 256] for text in texts]
    assert [plain.ids[a:b].tolist() for a, b in pairwise(plain.starts)] == [[*text.encode(), 256] for text in texts]

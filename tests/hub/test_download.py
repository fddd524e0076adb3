"""From a name to a folder: what exists wins, nothing leaves its place, the hub's errors become ours."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub import errors as hub
from huggingface_hub.utils import filter_repo_objects

import headway
from headway.config import presets
from headway.errors import DamagedError, HeadwayError, MemoryOrDiskError, NetworkError, NotFoundError
from headway.hub import download
from headway.hub.download import FILES, fetch, resolve
from headway.hub.folder import save_model
from headway.model.model import Transformer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """What would be fetched from the hub; nothing is."""
    calls: list[tuple[str, str | None]] = []

    def note(hub_id: str, revision: str | None = None) -> Path:
        calls.append((hub_id, revision))
        return Path("fetched")

    monkeypatch.setattr(download, "fetch", note)
    return calls


def refused(what: str) -> str:
    with pytest.raises(HeadwayError) as caught:
        resolve(what)
    assert (caught.value.code, type(caught.value)) == ("F001", NotFoundError)
    return caught.value.message


# --- names --------------------------------------------------------------------------------------


def test_a_folder_that_exists_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str | None]]
) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for what in ("org/name", "./org/name", "plain", "./plain", "plain/", "org/../plain", str(tmp_path / "plain")):
        assert resolve(what).samefile(what)
    assert resolve("~/plain").samefile("plain")
    monkeypatch.chdir(tmp_path / "plain")
    assert resolve("../org/name").samefile(tmp_path / "org" / "name")
    assert resolve("..").samefile(tmp_path)
    assert asked == []


def test_hf_always_means_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str | None]]
) -> None:
    for place in ("org", "hf:/org"):
        (tmp_path / place / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve("hf://org/name") == Path("fetched")
    assert asked == [("org/name", None)]


@pytest.mark.parametrize(
    ("what", "hub_id", "revision"),
    [
        ("org/name", "org/name", None),
        ("hf://org/name", "org/name", None),
        ("org/name@main", "org/name", "main"),
        ("hf://org/name@v1.0", "org/name", "v1.0"),
        (f"org/name@{COMMIT}", "org/name", COMMIT),
        ("org/name@refs/pr/1", "org/name", "refs/pr/1"),
        ("Org-1/name_2.3-x", "Org-1/name_2.3-x", None),
    ],
)
def test_hub_ids(asked: list[tuple[str, str | None]], what: str, hub_id: str, revision: str | None) -> None:
    assert resolve(what) == Path("fetched")
    assert asked == [(hub_id, revision)]


@pytest.mark.parametrize(
    "what",
    [
        "", "nonsense", "a/b/c", "org/", "/name", "org/name@", "@main", "org name/x", "org/name main", "hf://",
        "hf://name", "hf:/org/name", "https://huggingface.co/org/name", "org\\name", "./absent", "./org/absent",
        "/absent/folder", "~absent-user/x", "a\0b", "org/a\0b", "x" * 5000, "org/name\n", "-x/name",
    ],
)  # fmt: skip
def test_nonsense(asked: list[tuple[str, str | None]], what: str) -> None:
    assert "no such model" in refused(what)
    assert asked == []


@pytest.mark.parametrize(
    "what",
    [
        "../x", "../../x/y", "org/..", "org/../x", "../org/x", "hf://../x", "hf://org/..", "hf:///etc/passwd",
        "org/name@../../x", "org/name@..", "org/na..me", "org--x/name", "org/na--me", "/etc/absent",
    ],
)  # fmt: skip
def test_a_name_cannot_leave(asked: list[tuple[str, str | None]], what: str) -> None:
    """A dash pair would stand for a slash in the cache, two dots for the folder above."""
    refused(what)
    assert asked == []


# --- the cache ----------------------------------------------------------------------------------


@pytest.fixture
def model() -> Transformer:
    return Transformer(presets.gpt2(1, 8, 2, vocab=20, length=8)).eval()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Transformer) -> Path:
    """A cache in the hub's layout that holds one model, and no way to reach the hub."""
    plain = save_model(model, tmp_path / "plain")
    storage = tmp_path / "cache" / "models--org--name"
    snapshot = storage / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (storage / "blobs").mkdir()
    (storage / "refs").mkdir()
    for path in plain.iterdir():
        blob = storage / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(blob)
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", blob.name))
    for ref in ("main", "v1.0"):
        (storage / "refs" / ref).write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    assert constants.is_offline_mode()
    return storage


@pytest.mark.parametrize("what", ["org/name", "hf://org/name", "org/name@main", "org/name@v1.0", f"org/name@{COMMIT}"])
def test_a_cached_model_loads_offline(cache: Path, model: Transformer, what: str) -> None:
    folder = resolve(what)
    assert folder == cache / "snapshots" / COMMIT
    bundle = headway.load(what)
    assert (bundle.name, bundle.folder) == (what, folder)
    ids = torch.arange(5)[None]
    assert torch.equal(bundle.model(ids).hidden, model(ids).hidden)


@pytest.mark.parametrize("what", ["org/other", "org/name@v2.0", "org/name@" + "f" * 40])
def test_a_model_that_is_not_cached_gives_a_network_error_offline(cache: Path, what: str) -> None:
    with pytest.raises(NetworkError) as caught:
        resolve(what)
    assert (caught.value.code, caught.value.exit_code) == ("N001", 6)
    assert what in caught.value.message
    assert "HF_HUB_OFFLINE" in caught.value.hint
    assert max(map(len, str(caught.value).splitlines())) <= 300


def test_a_cached_file_cannot_link_out_of_the_cache(cache: Path, tmp_path: Path) -> None:
    link = cache / "snapshots" / COMMIT / "model.safetensors"
    outside = tmp_path / "outside.safetensors"
    link.resolve().rename(outside)
    link.unlink()
    link.symlink_to(outside)
    with pytest.raises(DamagedError, match="X006"):
        headway.load("org/name")


# --- the hub's errors ---------------------------------------------------------------------------


def http(kind: Any, status: int) -> Exception:
    """An error as the hub's client makes it from a response."""
    module = __import__(hub.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])
    request = module.Request("GET", "https://huggingface.co/api/models/org/name")
    error: Exception = kind("it says\nmore", response=module.Response(status, request=request))
    return error


ERRORS: dict[str, tuple[Exception, str, str]] = {
    "no such revision": (http(hub.RevisionNotFoundError, 404), "F001", "no revision 'v9'"),
    "terms not accepted": (http(hub.GatedRepoError, 403), "F001", "accept its terms"),
    "no such model": (http(hub.RepositoryNotFoundError, 404), "F001", "not on the hub, or is private"),
    "no such file": (http(hub.RemoteEntryNotFoundError, 404), "N001", "it says"),
    "a bad request": (http(hub.BadRequestError, 400), "N001", "it says"),
    "the hub is down": (http(hub.HfHubHTTPError, 503), "N001", "it says"),
    "not in the cache": (hub.LocalEntryNotFoundError("it says. And more."), "N001", "it says"),
    "half in the cache": (hub.IncompleteSnapshotError("it says", snapshot_path="x"), "N001", "it says"),
    "offline": (hub.OfflineModeIsEnabled("it says"), "N001", "it says"),
    "no token": (hub.LocalTokenNotFoundError("it says"), "N001", "it says"),
    "not a hub id": (hub.HFValidationError("it says"), "F001", "no hub id"),
    "no route": (ConnectionError("it says"), "N001", "it says"),
    "too slow": (TimeoutError(), "N001", "TimeoutError"),
    "a full disk": (OSError(errno.ENOSPC, "No space left on device", "blobs"), "M002", "No space left on device"),
    "a locked cache": (PermissionError(errno.EACCES, "Permission denied", "blobs"), "F007", "no permission"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_every_error_of_the_hub_becomes_one_of_ours(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, code, part = ERRORS[case]

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(HeadwayError) as caught:
        fetch("org/name", "v9")
    assert caught.value.code == code
    assert type(caught.value) is {"N": NetworkError, "F": NotFoundError, "M": MemoryOrDiskError}[code[0]]
    assert part in caught.value.message
    assert "org/name" in caught.value.message
    assert len(str(caught.value).splitlines()) <= 2


def test_a_lost_connection_becomes_a_network_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport's own errors come through as they are; its library is not ours to name."""
    transport = hub.HfHubHTTPError.__bases__[0]
    lost = [cls for cls in _below(transport) if cls.__name__ in ("ReadError", "ProxyError", "ConnectTimeout")]
    assert len(lost) == 3
    for cls in lost:
        monkeypatch.setattr(huggingface_hub, "snapshot_download", _raising(cls("gone")))
        with pytest.raises(NetworkError, match=r"N001.*gone"):
            fetch("org/name")


def _below(cls: type) -> list[Any]:
    return [cls, *(deeper for inner in cls.__subclasses__() for deeper in _below(inner))]


def _raising(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def test_a_bug_is_not_taken_for_a_network_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        fetch("org/name")


# --- what is fetched ----------------------------------------------------------------------------


def test_only_data_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def note(hub_id: str, **options: Any) -> str:
        seen.update(options, hub_id=hub_id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", note)
    assert fetch("org/name", "v1") == tmp_path
    assert seen == {"hub_id": "org/name", "revision": "v1", "allow_patterns": FILES}
    wanted = [
        "config.json", "generation_config.json", "model.safetensors", "model-00001-of-00002.safetensors",
        "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "merges.txt",
        "spiece.model", "source.spm", "target.spm", "chat_template.jinja",
    ]  # fmt: skip
    never = [
        "pytorch_model.bin", "model.pt", "consolidated.00.pth", "last.ckpt", "optimizer.pkl", "x.pickle",
        "tf_model.h5", "flax_model.msgpack", "model.onnx", "model.gguf", "modeling.py", "sub/code.py", "run.sh",
        "lib.so", "notebook.ipynb", "data.npy", "training_args.bin", "archive.zip", ".gitattributes",
    ]  # fmt: skip
    assert sorted(filter_repo_objects(wanted + never, allow_patterns=FILES)) == sorted(wanted)

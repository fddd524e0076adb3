"""What a run is made from: its recipe, data, split, tokenizer, model and machine.

Every checkpoint holds this record, and resuming compares it with what is there now. Nothing that a model has learned
from, or is measured on, changes unnoticed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import platform
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from headway.config.toml import to_dict
from headway.data.datasets.parallel import split_pair_spec
from headway.data.files.lines import GZIP_FREE, GZIP_RATIO
from headway.data.files.locate import file_format, find_files
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DamagedError, DataError, NotFoundError, counted
from headway.jsonfile import show, unreadable
from headway.tasks.recipe import Recipe, read_recipe, recipe_values
from headway.tasks.training import Training
from headway.train.changes import Change, check_changes, value_changes
from headway.train.checkpoint import newest_state
from headway.version import __version__

Record = dict[str, Any]

PARTS = ("train", "valid", "test")
MOST_FILES = 1000
"""Files that a record lists one by one; of more it has the sum."""
CHUNK = 1 << 20
COUNTS = ("documents", "samples", "tokens", "valid_samples", "valid_tokens")
"""What a task says of its split, where it has the number."""
PROBE = "Ærøskøbing 42: the quick brown fox, don't stop! 漢字 été\tA_b-C/d  ©\n"
"""Two tokenizers with one vocabulary may still part texts differently: this text shows it."""
ACCEPT = "--accept-changed-data"


@dataclass(frozen=True)
class Resumed:
    """What is known of a run that goes on."""

    before: Record | None
    """The record of the checkpoint; None where an older headway has written it."""
    kept: Recipe
    """The recipe in the run's folder."""
    accept: bool = False
    """Whether changed data are accepted."""


def data_record(recipe: Recipe) -> Record:
    """Every file that the recipe's data stand for: name, size, lines and SHA-256, in the order they are read."""
    return {part: _files(spec) for part in PARTS if (spec := getattr(recipe.data, part))}


def data_stamp(recipe: Recipe) -> list[tuple[str, int, int]]:
    """Changes when a file does; costs nothing. Says whether what was hashed is also what was read."""
    specs = [spec for part in PARTS if (spec := getattr(recipe.data, part))]
    paths = [path for spec in specs for side in split_pair_spec(spec) or (spec,) for path in find_files(side)]
    states = [(str(path), path.stat()) for path in paths]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]


def _files(spec: str) -> list[Record]:
    found = []
    for side in split_pair_spec(spec) or (spec,):
        paths = find_files(side)
        root = os.path.commonpath([path.parent for path in paths])
        found += [{"name": os.path.relpath(path, root).replace(os.sep, "/"), **_content(path)} for path in paths]
    return found if len(found) <= MOST_FILES else [_sum(found)]


def _content(path: Path) -> Record:
    """Of what a packed file holds, so that packing it anew changes nothing; of one that is damaged, as it is."""
    kind, packed = file_format(path)
    try:
        found = _unpacked(path) if packed else None
        if found is None:
            with path.open("rb") as file:
                found = _hashed(file)
    except OSError as error:
        raise unreadable(path, error) from None
    assert found is not None, "a plain file has no limit"
    digest, size, lines = found
    record: Record = {"size": size, "sha256": digest}
    if kind != "parquet":
        record["lines"] = lines
    if revision := re.search(r"/snapshots/([0-9a-f]{40})/", path.as_posix()):  # a dataset of the hub
        record["revision"] = revision[1]
    return record


def _unpacked(path: Path) -> tuple[str, int, int] | None:
    """None where a file is damaged, or larger than its reader would take."""
    most = max(GZIP_FREE, GZIP_RATIO * path.stat().st_size)
    with suppress(gzip.BadGzipFile, EOFError, zlib.error), gzip.open(path) as file:
        return _hashed(file, most)
    return None


def _hashed(file: IO[bytes] | gzip.GzipFile, most: float = math.inf) -> tuple[str, int, int] | None:
    """Digest, bytes and lines; None beyond `most` bytes."""
    digest, size, lines = hashlib.sha256(), 0, 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        size, lines = size + len(chunk), lines + chunk.count(b"\n")
        if size > most:
            return None
    return digest.hexdigest(), size, lines


def _sum(files: Sequence[Record]) -> Record:
    digest = hashlib.sha256("".join(file["sha256"] for file in files).encode())
    name = f"{len(files):,} files"
    return {"name": name, "size": sum(file["size"] for file in files), "sha256": digest.hexdigest()}


def record_run(recipe: Recipe, data: Record, task: Training, config: Any, place: Record) -> Record:
    """All of it; `config` is of the model, `place` is where the run computes."""
    split = {name: task.facts[name] for name in COUNTS if name in task.facts}
    if not recipe.data.train:  # made by Python or by headway, which change as well
        split["built_in"] = task.facts.get("fingerprint", "")
    return {
        "recipe": recipe_values(recipe),
        "data": data,
        "split": split,
        "tokenizer": tokenizer_digest(task.tokenizer),
        "model": json.loads(json.dumps(to_dict(config))),
        "place": place,
    }


def record_place(device: torch.device, processes: int, half: bool) -> Record:
    """Harmless when it changes, but a run does not end in the same bits then."""
    return {
        "headway": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": processes,
        "products": "bfloat16" if half else "float32",
    }


def tokenizer_digest(tokenizer: Tokenizer | None) -> str:
    """Of the vocabulary, and of how a text becomes tokens; not of a file, which versions may write differently."""
    if tokenizer is None:
        return ""
    both = [tokenizer] if tokenizer.target is tokenizer else [tokenizer, tokenizer.target]
    known = [(sorted(one.backend.get_vocab().items()), one.encode(PROBE).ids) for one in both]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def check_recipe(recipe: Recipe, resumed: Resumed) -> list[str]:
    """The settings that changed, as notes; an error where one must not."""
    before, notes = resumed.kept, []
    if resumed.before is not None:
        before = read_recipe(resumed.before["recipe"])
    else:
        unknown = "whether the data or its recipe have changed is not known, and the learning rate keeps its old rule"
        notes = [f"the checkpoint is of an older headway: {unknown}"]
    return notes + [str(change) for change in check_changes(before, recipe)]


def check_data(recipe: Recipe, data: Record, resumed: Resumed) -> list[str]:
    """Notes on data that changed; an error where that is not accepted. Other paths to the same content are fine."""
    if resumed.before is None:
        return []
    found = []
    for part in ("train", "valid"):
        before, now = resumed.before["data"].get(part, []), data.get(part, [])
        found += [f"data.{part}: {difference}" for difference in _differences(before, now)]
    notes = _accepted(found, recipe, resumed)
    tested = _differences(resumed.before["data"].get("test", []), data.get("test", []))
    return notes + [f"data.test: {difference}" for difference in tested]  # scored once, at the end: nothing to mix up


def is_mixed(data: Record, resumed: Resumed | None) -> bool:
    """Whether a run has ever gone on with other data: what it holds out now, it may have learned from before."""
    before = resumed.before if resumed else None
    return before is not None and (bool(before.get("mixed")) or _files_differ(before["data"], data))


def same_data(folder: Path, recipe: Recipe) -> bool:
    """Whether the data of a run are what they always were; true as well where nothing tells."""
    origin = (newest_state(folder / "run" / "checkpoints") or {}).get("origin") or {}
    before = origin.get("data")
    if origin.get("mixed"):
        return False
    with suppress(NotFoundError):  # of files that are gone, whoever reads them will tell
        return before is None or not _files_differ(before, data_record(recipe))
    return True


def check_held_out(folder: Path, recipe: Recipe) -> None:
    """Refuse to evaluate on what a run held out, where its data have changed and would be parted otherwise."""
    if not same_data(folder, recipe):
        what = "the data have changed since the run began: what it held out is not there any more, and a part held out "
        hint = "put the data back, or give some that the run has not seen: headway eval MODEL FILE"
        raise DataError("D020", f"{show(folder)}: {what}anew would hold text that it has learned from", hint)


def check_split(record: Record, recipe: Recipe, resumed: Resumed) -> list[str]:
    """The same for how the data were read and parted, where the files are what they were; for tokenizer and model."""
    before = resumed.before
    if before is None:
        return []
    if before["tokenizer"] != record["tokenizer"]:
        what = "the tokenizer is not the one that the run began with: its ids stand for other texts"
        raise DamagedError("X020", what, "put back run/tokenizer, or the folder of model.from; or start a new run")
    if other := value_changes(before["model"], record["model"]):
        what = f"the model would be another one: {_listed([str(change) for change in other])}"
        raise DataError("D020", what, "the data or model.from have changed: put them back, or start a new run")
    notes = _place_notes(value_changes(before["place"], record["place"]))
    if _files_differ(before["data"], record["data"]):
        return notes  # that was looked at before
    changed = [f"{change} ({_where(recipe)})" for change in value_changes(before["split"], record["split"])]
    return notes + _accepted(changed, recipe, resumed)


def _place_notes(changes: Sequence[Change]) -> list[str]:
    """One note for all: none of it changes what a run learns from."""
    said = [str(change) for change in changes]
    return [f"{', '.join(said)}: the run may not end in the same bits"] if said else []


def _where(recipe: Recipe) -> str:
    return "the files are the same" if recipe.data.train else "data that come with Python or headway"


def _files_differ(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return any(_differences(before.get(part, []), now.get(part, [])) for part in ("train", "valid"))


def _accepted(found: Sequence[str], recipe: Recipe, resumed: Resumed) -> list[str]:
    if not found:
        return []
    if resumed.accept:
        return [f"changed data are accepted: {difference}" for difference in found]
    if recipe.data.valid:
        means = "the order of samples would change, and scores would not compare with those before"
    else:
        means = "the held-out part would be cut anew, and hold text that the run has learned from"
    revisions = {r for part in (resumed.before or {})["data"].values() for file in part if (r := file.get("revision"))}
    pinned = f"; the revision of before: @{revisions.pop()}" if len(revisions) == 1 else ""
    hint = f"put the data back{pinned}; or start a new run; {ACCEPT} goes on all the same"
    raise DataError("D020", f"the data have changed since the run began: {_listed(found)}: {means}", hint)


def _listed(found: Sequence[str], most: int = 3) -> str:
    more = f"; and {len(found) - most:,} more" if len(found) > most else ""
    return "; ".join(found[:most]) + more


def _differences(before: Sequence[Record], now: Sequence[Record]) -> list[str]:
    """By content, in order: names and folders may change."""
    if [file["sha256"] for file in before] == [file["sha256"] for file in now]:
        return []
    if not before or not now:
        which = "none before, now" if now else "none now, before"
        return [f"{which} {', '.join(_told(file) for file in (now or before)[:3])}"]
    if len(before) == len(now):
        pairs = zip(before, now, strict=True)
        return [_difference(old, new) for old, new in pairs if old["sha256"] != new["sha256"]]
    old_names, new_names = {f["name"]: f for f in before}, {f["name"]: f for f in now}
    found = [f"{counted(len(before), 'files')} before, {len(now):,} now"]
    found += [f"{show(name)} is gone" for name in old_names if name not in new_names]
    found += [f"{_told(file)} is new" for name, file in new_names.items() if name not in old_names]
    both = [(old_names[name], file) for name, file in new_names.items() if name in old_names]
    return found + [_difference(old, new) for old, new in both if old["sha256"] != new["sha256"]]


def _difference(old: Record, new: Record) -> str:
    name = show(new["name"])
    if old["size"] == new["size"]:
        return f"{name} has other content, {new['size']:,} bytes as before"
    lines = f" ({old['lines']:,} → {new['lines']:,} lines)" if "lines" in old and "lines" in new else ""
    return f"{name} had {old['size']:,} bytes, now {new['size']:,}{lines}"


def _told(file: Record) -> str:
    return f"{show(file['name'])} ({file['size']:,} bytes)"


def changed_meanwhile() -> DataError:
    """The files were hashed, and then were others when they were read."""
    return DataError("D020", "a data file changed while it was being read", "start again when it is complete")

"""What a run is made from: its recipe, data, split, tokenizer, model and machine.

Every checkpoint holds this record, and a resumed run compares it with what is there now. Nothing that a model has
learned from, or is measured on, changes unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway.config.toml import to_dict
from headway.data.datasets.raw import raw_files
from headway.data.files.digest import file_content
from headway.data.files.locate import file_format, on_disk
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DamagedError, DataError, NotFoundError, counted
from headway.hub.checkpoint import checkpoints_of, newest_state
from headway.jsonfile import show
from headway.tasks.recipe import Recipe, read_recipe, recipe_values
from headway.tasks.registry import get_task
from headway.tasks.training import Training
from headway.train.changes import check_changes, value_changes
from headway.version import __version__

Record = dict[str, Any]

PARTS = ("train", "valid", "test")
MAX_FILES = 1000
"""The most files that a record lists one by one; of more it has one digest."""
COUNTS = ("documents", "samples", "tokens", "valid_samples", "valid_tokens")
"""Numbers of the split that the record takes from the task's facts."""
PROBE = "Ærøskøbing 42: the quick brown fox, don't stop! 漢字 été\tA_b-C/d  ©\n"
"""Two tokenizers with the same vocabulary may still split texts differently: this text shows it."""
ACCEPT = "--accept-changed-data"


@dataclass(frozen=True)
class Resumed:
    """What is known of a run that is resumed."""

    before: Record | None
    """The record in the checkpoint; None if an older headway wrote it."""
    written: Recipe
    """The recipe in the run's folder."""
    accept: bool = False
    """Whether changed data are accepted."""


def data_record(recipe: Recipe) -> Record:
    """Every file of the recipe's data, in the order they are read: name, size, lines and SHA-256."""
    return {part: _files(paths) for part in PARTS if (paths := _paths(recipe, part))}


def data_stamp(recipe: Recipe) -> list[tuple[str, int, int]]:
    """Sizes and modification times of the data files: whether the files that were hashed are those that were read."""
    states = [(str(path), on_disk(path).stat()) for part in PARTS for path in _paths(recipe, part)]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]


def _paths(recipe: Recipe, part: str) -> list[Path]:
    """The files of a part of the data."""
    spec = getattr(recipe.data, part)
    if not spec:
        return []
    return raw_files(spec) if recipe.data.raw else get_task(recipe.task).files(spec)


def _files(paths: Sequence[Path]) -> list[Record]:
    root = os.path.commonpath([path.parent for path in paths])
    found = [{"name": os.path.relpath(path, root).replace(os.sep, "/"), **_file(path)} for path in paths]
    if len(found) <= MAX_FILES:
        return found
    digest = hashlib.sha256("".join(file["sha256"] for file in found).encode())
    size = sum(file["size"] for file in found)
    return [{"name": f"{len(found):,} files", "size": size, "sha256": digest.hexdigest()}]


def _file(path: Path) -> Record:
    content = file_content(path)
    record: Record = {"size": content.size, "sha256": content.sha256}
    if file_format(path)[0] not in ("parquet", "sheet"):
        record["lines"] = content.lines
    if revision := re.search(r"/snapshots/([0-9a-f]{40})/", path.as_posix()):  # a dataset of the hub
        record["revision"] = revision[1]
    return record


def record_run(recipe: Recipe, data: Record, task: Training, config: Any, place: Record) -> Record:
    """The complete record; `config` is the model's, `place` is from `record_place`."""
    split = {name: task.facts[name] for name in COUNTS if name in task.facts}
    if not recipe.data.train:  # data that come with Python or headway differ between their versions
        split["built_in"] = task.facts.get("fingerprint", "")
    return {
        "recipe": recipe_values(recipe),
        "data": data,
        "split": split,
        "tokenizer": tokenizer_digest(task.tokenizer),
        "model": json.loads(json.dumps(to_dict(config))),
        "place": place,
    }


def record_place(device: torch.device, processes: int, bfloat16: bool) -> Record:
    """The machine and the versions. They may change, but then a run does not end in the same bits."""
    return {
        "headway": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processes": processes,
        "products": "bfloat16" if bfloat16 else "float32",
    }


def tokenizer_digest(tokenizer: Tokenizer | None) -> str:
    """A digest of the vocabulary and of the tokens of `PROBE`; not of the file, which versions write differently."""
    if tokenizer is None:
        return ""
    both = [tokenizer] if tokenizer.target is tokenizer else [tokenizer, tokenizer.target]
    known = [(sorted(one.backend.get_vocab().items()), one.encode(PROBE).ids) for one in both]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def check_recipe(recipe: Recipe, resumed: Resumed) -> list[str]:
    """Notes on the settings that changed; an error if one of them is fixed."""
    before, notes = resumed.written, []
    if resumed.before is not None:
        before = read_recipe(resumed.before["recipe"])
    else:
        unknown = "changes of its data and recipe cannot be detected, and its learning rate keeps the old schedule"
        notes = [f"the checkpoint is from an older headway: {unknown}"]
    return notes + [str(change) for change in check_changes(before, recipe)]


def check_data(recipe: Recipe, data: Record, resumed: Resumed) -> list[str]:
    """Notes on data that changed; an error unless that is accepted. Files may move, if their content is the same."""
    if resumed.before is None:
        return []
    found = []
    for part in ("train", "valid"):
        before, now = resumed.before["data"].get(part, []), data.get(part, [])
        found += [f"data.{part}: {difference}" for difference in _differences(before, now)]
    notes = _accepted(found, recipe, resumed)
    tested = _differences(resumed.before["data"].get("test", []), data.get("test", []))
    return notes + [f"data.test: {difference}" for difference in tested]  # the test runs once, at the end


def is_mixed(data: Record, resumed: Resumed | None) -> bool:
    """Whether a run was ever resumed with other data: it may then have learned from what is now held out."""
    before = resumed.before if resumed else None
    return before is not None and (bool(before.get("mixed")) or _files_differ(before["data"], data))


def same_data(folder: Path, recipe: Recipe) -> bool:
    """Whether the data of a run have never changed; true if the run has no record."""
    origin = (newest_state(checkpoints_of(folder)) or {}).get("origin") or {}
    before = origin.get("data")
    if origin.get("mixed"):
        return False
    with suppress(NotFoundError):  # whoever reads missing files will report them
        return before is None or not _files_differ(before, data_record(recipe))
    return True


def check_held_out(folder: Path, recipe: Recipe) -> None:
    """Refuse to evaluate on the part that a run held out if its data have changed: the split would differ."""
    if not same_data(folder, recipe):
        what = "the data have changed since the run began, so a new split would hold out text that it has learned from"
        hint = "restore the data, or evaluate on data that the run has not seen: headway eval MODEL FILE"
        raise DataError("D020", f"{show(folder)}: {what}", hint)


def check_split(record: Record, recipe: Recipe, resumed: Resumed) -> list[str]:
    """Check tokenizer and model, and the split if the files are the same; notes on what changed."""
    before = resumed.before
    if before is None:
        return []
    if before["tokenizer"] != record["tokenizer"]:
        what = "the tokenizer differs from the one that the run began with: its ids mean other texts"
        raise DamagedError("X020", what, "restore run/tokenizer or the folder of model.from, or start a new run")
    if other := value_changes(before["model"], record["model"]):
        what = f"the model would differ: {_listed([str(change) for change in other])}"
        raise DataError("D020", what, "the data or model.from have changed: restore them, or start a new run")
    machine = ", ".join(str(change) for change in value_changes(before["place"], record["place"]))
    notes = [f"{machine}: the run may not end in the same bits"] if machine else []
    if _files_differ(before["data"], record["data"]):
        return notes  # `check_data` has reported that
    where = "the files are the same" if recipe.data.train else "data that come with Python or headway"
    changed = [f"{change} ({where})" for change in value_changes(before["split"], record["split"])]
    return notes + _accepted(changed, recipe, resumed)


def _files_differ(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return any(_differences(before.get(part, []), now.get(part, [])) for part in ("train", "valid"))


def _accepted(found: Sequence[str], recipe: Recipe, resumed: Resumed) -> list[str]:
    """The differences as notes if they are accepted; else an error."""
    if not found:
        return []
    if resumed.accept:
        return [f"changed data are accepted: {difference}" for difference in found]
    if recipe.data.valid:
        means = "the order of samples would change, and scores would not compare with earlier ones"
    else:
        means = "the held-out part would differ and contain text that the run has learned from"
    revisions = {r for part in (resumed.before or {})["data"].values() for file in part if (r := file.get("revision"))}
    pinned = f" (its revision was @{revisions.pop()})" if len(revisions) == 1 else ""
    hint = f"restore the data{pinned}, start a new run, or resume with {ACCEPT}"
    raise DataError("D020", f"the data have changed since the run began: {_listed(found)}: {means}", hint)


def _listed(found: Sequence[str], most: int = 3) -> str:
    more = f"; and {len(found) - most:,} more" if len(found) > most else ""
    return "; ".join(found[:most]) + more


def _differences(before: Sequence[Record], now: Sequence[Record]) -> list[str]:
    """How two lists of files differ by content and order; names and folders may change."""
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

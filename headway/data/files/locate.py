"""From a data spec to files: a path, a glob, a folder or a hub dataset; and their fingerprints."""

from __future__ import annotations

import codecs
import glob
import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import cast

from headway import progress
from headway.errors import DataError, NetworkError, NotFoundError, counted, nearest
from headway.jsonfile import show, unreadable
from headway.resources import DISK_FULL, REFUSED, write_error

FORMATS = {
    ".txt": "text",
    ".md": "text",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".xlsx": "sheet",
    ".ods": "sheet",
}
"""Extension → format; .gz may follow. A file with another extension, or without one, is read as text."""
NO_DATA = {
    **dict.fromkeys((".pdf",), ("PDF", "extract its text first: pdftotext FILE.pdf FILE.txt")),
    **dict.fromkeys((".doc", ".docx", ".odt", ".rtf"), ("a document", "save it as plain text (.txt) first")),
    **dict.fromkeys((".xls", ".xlsb", ".numbers"), ("a workbook", "save it as .xlsx or .csv first")),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".rar"), ("an archive", "unpack it, and give its folder")),
    **dict.fromkeys((".bz2", ".xz", ".zst"), ("compressed", "unpack it first, or compress it with gzip")),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff"), ("a picture", "give texts")),
    **dict.fromkeys((".wav", ".mp3", ".flac", ".ogg", ".mp4"), ("a recording", "give texts")),
    **dict.fromkeys((".npy", ".npz", ".pkl", ".arrow", ".feather"), ("binary", "save it as .parquet or .jsonl first")),
}
"""Extension → what such a file is, and what the user can do. In a folder they are left out, and named."""
DOCUMENTATION = ("readme", "license", "licence", "dataset_info", "dataset_infos")
"""Names of files that describe a dataset: skipped in folders, read if the user names them."""
DATASET = re.compile(
    r"(?:hf://(?:datasets/)?)?(?P<id>\w[\w.-]*/\w[\w.-]*?)(?:@(?P<revision>[\w./-]+))?(?::(?P<split>[\w.-]+))?"
)
SPEC_HELP = 'give a file, a folder, a glob in quotes ("corpus/*.jsonl"), or a hub dataset: org/name[@revision][:split]'


def file_format(path: PurePath | str) -> tuple[str, bool]:
    """The format of a file by its name, and whether it is compressed."""
    return FORMATS.get(_extension(path), "text"), split_sheet(path)[0].lower().endswith(".gz")


def _extension(path: PurePath | str) -> str:
    return PurePath(PurePath(split_sheet(path)[0]).name.lower().removesuffix(".gz")).suffix


def split_sheet(path: PurePath | str) -> tuple[str, str]:
    """The file and the sheet of `book.xlsx#Sheet2`; the sheet is empty for all other paths."""
    file, mark, sheet = str(path).rpartition("#")
    of_book = mark and FORMATS.get(PurePath(file.lower()).suffix) == "sheet"
    return (file, sheet) if of_book else (str(path), "")


def on_disk(path: Path) -> Path:
    """The file that a path of `find_files` is in: without the name of a sheet."""
    return Path(split_sheet(path)[0])


def find_files(spec: str) -> list[Path]:
    """Return the files of a spec, sorted. Local files win over the hub; `hf://` always means the hub."""
    path = os.path.expanduser(spec)
    if not spec.startswith("hf://") and "\0" not in spec:
        if os.path.isfile(path):
            return [_readable(Path(path))]
        if os.path.isfile(split_sheet(path)[0]):
            return [Path(path)]
        if os.path.isdir(path):
            return _nonempty(_files_below(Path(path)), spec)
        if glob.has_magic(path):
            found = [Path(name) for name in sorted(glob.glob(path, recursive=True)) if os.path.isfile(name)]
            if not found:
                raise NotFoundError("F001", f"no file matches {show(spec)}{_nearest_name(path)}")
            return [_readable(path) for path in found]
    if may_be_hub(spec) and (match := DATASET.fullmatch(spec)):
        return _from_hub(match["id"], match["revision"], match["split"])
    if os.path.exists(path):
        raise NotFoundError("F001", f"{show(spec)} is neither a file nor a folder", SPEC_HELP)
    raise NotFoundError("F001", f"no such file: {show(spec)[:200]}{_nearest_name(path)}", SPEC_HELP)


def may_be_hub(spec: str) -> bool:
    """Whether a spec that is no local file may be a dataset of the hub."""
    match = DATASET.fullmatch(spec)
    named = match is not None and ".." not in spec and "--" not in match["id"]
    return named and (spec.startswith("hf://") or _not_a_path(spec))


def skipped_files(spec: str) -> list[str]:
    """The files of a folder that `find_files` leaves out because they are not text: pictures, PDFs, archives …"""
    folder = Path(os.path.expanduser(spec))
    if spec.startswith("hf://") or "\0" in spec or not folder.is_dir():
        return []
    return [path.relative_to(folder).as_posix() for path in _all_below(folder) if not _looks_like_data(path)]


def skipped_note(names: Sequence[str]) -> str:
    """How many files of a folder were left out, by kind, and some of their names; empty if there are none."""
    kinds = Counter(_extension(name) or "no extension" for name in names)
    listed = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common(4))
    some = ", ".join(show(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
    return f"{counted(len(names), 'files')} left out, not text or tables ({listed}): {some}" if names else ""


def _readable(path: Path) -> Path:
    """A file that the user named; one that is certainly neither text nor a table is an error."""
    if (extension := _extension(path)) in NO_DATA:
        what, remedy = NO_DATA[extension]
        raise DataError(
            "D003", f"{show(path)} is {what}, not text or a table", remedy.replace("FILE.", f"{path.stem}.")
        )
    return path


def _nonempty(files: list[Path], spec: str) -> list[Path]:
    if not files:
        left = f"; {skipped_note(names)}" if (names := skipped_files(spec)) else ""
        message = f"{show(spec)}: no data files in this folder{left}"
        raise DataError("D002", message, f"headway reads {', '.join(FORMATS)}")
    return files


def _files_below(folder: Path) -> list[Path]:
    """Return all files below a folder that look like data, sorted."""
    return [path for path in _all_below(folder) if _looks_like_data(path)]


def _all_below(folder: Path) -> list[Path]:
    """Return all files below a folder; hidden files and folders, and the documentation, are left out."""

    def fail(error: OSError) -> None:
        raise unreadable(Path(error.filename), error) from None

    found = []
    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    found = [path for path in found if path.name.lower().split(".")[0] not in DOCUMENTATION and path.is_file()]
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def _looks_like_data(path: Path) -> bool:
    """Whether a file has a known extension or contains text: a picture beside a corpus is not data."""
    if (extension := _extension(path)) in FORMATS or extension in NO_DATA:
        return extension in FORMATS
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            head = file.read(4096)
    except (OSError, EOFError, zlib.error):
        return True  # reading it will report the error
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" not in head


def _nearest_name(path: str) -> str:
    """Suggest the nearest name in the folder of a missing path."""
    folder, name = os.path.split(path)
    try:
        return nearest(name, os.listdir(folder or "."))
    except (OSError, ValueError):
        return ""


def _not_a_path(spec: str) -> bool:
    """Whether a spec cannot be a mistyped path: a data file's extension or an existing folder make it one."""
    folder, name = os.path.split(spec)
    return not os.path.isdir(folder) and _extension(name) not in FORMATS


def _from_hub(hub_id: str, revision: str | None, split: str | None) -> list[Path]:
    """Return the data files of a hub dataset, from the local cache if present; with a split, only the files of it."""
    from huggingface_hub import snapshot_download

    part = f"*{split}*" if split else "*"  # the hub's * also matches /, so folders count
    wanted = [part + extension + packed for extension in FORMATS if extension != ".md" for packed in ("", ".gz")]
    with hub_errors(hub_id, revision):
        folder = Path(snapshot_download(hub_id, repo_type="dataset", revision=revision, allow_patterns=wanted))
    files = _files_below(folder) if folder.is_dir() else []  # no folder if nothing was fetched
    if split:
        word = re.compile(rf"(?<![a-z0-9]){re.escape(split)}(?![a-z0-9])", re.IGNORECASE)
        named = [path for path in files if word.search(path.name)]
        files = named or [path for path in files if word.search(path.relative_to(folder).as_posix())]
    if not files:
        what = f"file of split {split!r}" if split else "data file"
        there = f"https://huggingface.co/datasets/{hub_id}/tree/{revision or 'main'} lists what it has"
        raise NotFoundError("F001", f"the dataset {hub_id} has no {what} that headway reads", there)
    return files


@contextmanager
def _download_bars(asked: str) -> Iterator[None]:
    """The hub's own bars where a moving line may be shown, none elsewhere; HF_HUB_DISABLE_PROGRESS_BARS wins."""
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    shown = progress.is_shown() and not constants.HF_HUB_DISABLE_PROGRESS_BARS
    if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        (enable_progress_bars if shown else disable_progress_bars)()
    with progress.hidden() if shown else progress.bar(f"downloading {asked}"):
        yield


@contextmanager
def hub_errors(hub_id: str, revision: str | None) -> Iterator[None]:
    """Convert errors of huggingface_hub to ours; `headway.hub.download` uses it for models."""
    from huggingface_hub import errors as hub

    asked = f"{hub_id}@{revision}" if revision else hub_id
    # the bases of the hub's error: the transport's error, for lost connections, and OSError
    lost = cast("tuple[type[Exception], ...]", hub.HfHubHTTPError.__bases__)
    try:
        with _download_bars(asked):
            yield
    except hub.HFValidationError as error:
        raise NotFoundError("F001", f"{asked} is no hub id: {str(error).splitlines()[0]}") from None
    except hub.RevisionNotFoundError:
        raise NotFoundError("F001", f"{hub_id} has no revision {revision!r} on the hub") from None
    except hub.GatedRepoError:
        raise NotFoundError(
            "F001", f"{asked} asks you to accept its terms on the hub first", "then: hf auth login"
        ) from None
    except hub.RepositoryNotFoundError:
        raise NotFoundError("F001", f"{asked} is not on the hub, or is private", "then: hf auth login") from None
    except lost as error:
        if isinstance(error, OSError) and (error.errno in DISK_FULL or error.errno in REFUSED):
            raise write_error("the cache", error, f"cannot be written, where {asked} would be kept") from None
        reason = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0][:150]
        raise NetworkError(
            "N001",
            f"{asked} is neither in the local cache nor could it be fetched: {reason}",
            "connect once and repeat, or unset HF_HUB_OFFLINE if it is set",
        ) from None

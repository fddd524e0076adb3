"""From `git clone` to the first generated text: the time of each step that a newcomer waits for.

    python benchmarks/first_text.py                     # two cores, warm package cache: under 4 minutes
    python benchmarks/first_text.py --make              # `make setup` instead of pip: the tools of developers too
    python benchmarks/first_text.py --pip "--index-url https://download.pytorch.org/whl/cpu --extra-index-url …"

Everything happens in a temporary folder. Processor time stands beside the wall clock, because other programs slow only
the clock down.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measured(name: str, command: list[str], folder: Path, quiet: bool = True) -> tuple[float, float]:
    """Run a command; wall and processor seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name:24} {wall:7.1f} s   {busy:7.1f} s of processor", flush=True)
    if not quiet:
        print(f"  {done.stdout.strip()[:200]!r}")
    return wall, busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", action="store_true", help="set up by `make setup`")
    parser.add_argument("--pip", default="", help="more options for pip")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place) / "headway"
        binaries = clone / ".venv" / "bin"
        pip = [str(binaries / "pip"), "install", "-q", *shlex.split(arguments.pip), "-c", "constraints.txt"]
        install = [
            ("python3 -m venv", ["python3", "-m", "venv", ".venv"]),
            ("pip install .[serve,cpu]", [*pip, ".[serve,cpu]"]),
        ]
        headway = str(binaries / "headway")
        steps = [
            *([("make setup", ["make", "setup"])] if arguments.make else install),
            ("headway train tiny", [headway, "train", "tiny", "-q"]),
        ]
        spent = [measured("git clone", ["git", "clone", "-q", str(ROOT), str(clone)], Path(place))]
        spent += [measured(name, command, clone) for name, command in steps]
        spent.append(measured("headway run last", [headway, "run", "last", "The import statement"], clone, quiet=False))
    print(
        f"{'in all':24} {sum(wall for wall, _ in spent):7.1f} s   {sum(busy for _, busy in spent):7.1f} s of processor"
    )


if __name__ == "__main__":
    main()

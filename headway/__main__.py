"""The program `headway`, also `python -m headway`: what has to happen before the verbs are imported."""

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

TORCH_VERBS = ("run", "eval", "train", "check", "export", "serve")
"""Verbs that import torch in any case."""
SPIN = "3000"
"""How often a thread of libgomp looks for work before it sleeps: for about 60 µs. Its own default is a hundred times as
long. Where another program uses a core, a waiting thread then holds the core that the working thread needs: the first
token of SmolLM2 took 3 s longer beside one busy program, and nothing longer on an idle machine."""


def main() -> None:
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN)
    if sys.argv[2:] and sys.argv[1] in TORCH_VERBS and not {"--help", "-h"} & {*sys.argv}:
        load_torch_library()
    from headway import cli

    cli.main()


def load_torch_library() -> None:
    """Load torch's largest library in a thread, while the command line is imported and parsed.

    The call of a foreign function releases the interpreter's lock, an import would not. Where the library cannot be
    loaded, `import torch` says why.
    """
    torch = find_spec("torch")
    if torch is None or torch.origin is None or not hasattr(os, "RTLD_NOW"):
        return
    library = next((Path(torch.origin).parent / "lib").glob("libtorch_cpu.*"), None)
    if library is not None:
        Thread(target=ctypes.CDLL(None).dlopen, args=(os.fsencode(library), os.RTLD_NOW)).start()


if __name__ == "__main__":
    main()

"""The program `headway`, also `python -m headway`: what has to happen before the verbs are imported."""

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

TORCH_VERBS = ("run", "inspect", "eval", "train", "check", "export", "serve")
"""Verbs that import torch in any case."""
SPIN = "3000"
"""How often a thread of libgomp looks for work before it sleeps; its own default is 300,000. Where other programs use
the cores, a waiting thread holds the core that the working thread needs: the prefill of SmolLM2 took 2.6 s instead of
0.1 s. On an idle machine both are equally fast; 300 would be slower there."""


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

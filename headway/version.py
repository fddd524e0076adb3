"""The version of headway, for those who may not import headway itself."""

from pathlib import Path

FILE = Path(__file__).with_name("version.txt")
"""Written when headway is built or installed, from the git tag; a checkout that was never installed has none."""

__version__ = FILE.read_text(encoding="utf-8").strip() if FILE.is_file() else "0.1.dev0+uninstalled"

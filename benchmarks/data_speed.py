"""Speed and memory of `headway data` on large files that are made up in a temporary folder.

    python benchmarks/data_speed.py            # 1 GB of each kind of file
    python benchmarks/data_speed.py 0.1 short  # 100 MB, one kind

Prints megabytes per second of the whole command, imports included, its time on all cores, and its peak memory.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.data.batching.windows import embedded_text

BATCH = 20_000
Row = dict[str, Any]


def texts(words: int) -> Iterator[str]:
    """Different stretches of the same text, of about this many words."""
    all_words, draw = embedded_text().split(), random.Random(0)
    while True:
        count = draw.randrange(words // 2, 2 * words)
        at = draw.randrange(len(all_words) - count)
        yield " ".join(all_words[at : at + count])


def short() -> Iterator[Row]:
    for i, text in enumerate(texts(15)):
        yield {"id": i, "text": text, "label": ("good", "bad", "fair")[i % 3]}


def long() -> Iterator[Row]:
    for i, text in enumerate(texts(600)):
        yield {"title": f"page {i}", "text": text, "score": i / 7}


def accents() -> Iterator[Row]:
    for row in short():
        yield row | {"text": row["text"].replace("e", "é").replace("'", "’")}


def chat() -> Iterator[Row]:
    found = texts(25)
    for first, second, third in zip(found, found, found, strict=False):
        roles = (("system", first), ("user", second), ("assistant", third))
        yield {"messages": [{"role": role, "content": text} for role, text in roles]}


def some_bad() -> Iterator[Row]:
    for i, row in enumerate(short()):
        yield row if i % 100_000 else row | {"text": None}


def write_json(path: Path, rows: Iterator[Row], size: int) -> None:
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        done = 0
        while done < size:
            part = "".join(json.dumps(next(rows), ensure_ascii=False) + "\n" for _ in range(BATCH))
            done += len(part)
            file.write(part)


def write_csv(path: Path, rows: Iterator[Row], size: int) -> None:
    with path.open("w") as file:
        done = file.write("id,text,label\n")
        while done < size:
            part = [next(rows) for _ in range(BATCH)]
            quoted = (row["text"].replace('"', '""') for row in part)
            done += file.write("".join(f'{r["id"]},"{t}",{r["label"]}\n' for r, t in zip(part, quoted, strict=True)))


def write_parquet(path: Path, rows: Iterator[Row], size: int) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    done, first = 0, pa.Table.from_pylist([next(rows) for _ in range(BATCH)])
    with ParquetWriter(path, first.schema) as file:
        while done < size:
            table = pa.Table.from_pylist([next(rows) for _ in range(BATCH)])
            done += table.nbytes
            file.write_table(table)


KINDS: dict[str, tuple[str, Callable[[], Iterator[Row]], Callable[[Path, Iterator[Row], int], None]]] = {
    "short": ("short.jsonl", short, write_json),
    "long": ("long.jsonl", long, write_json),
    "accents": ("accents.jsonl", accents, write_json),
    "chat": ("chat.jsonl", chat, write_json),
    "bad rows": ("some_bad.jsonl", some_bad, write_json),
    "gzip": ("short.jsonl.gz", short, write_json),
    "csv": ("short.csv", short, write_csv),
    "parquet": ("short.parquet", short, write_parquet),
}


def main() -> None:
    size = int(1e9 * float(sys.argv[1] if len(sys.argv) > 1 else 1))
    for kind in sys.argv[2:] or KINDS:
        name, rows, write = KINDS[kind]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write(path, rows(), size)
            begin = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", RUN, "data", str(path), "--json"], check=True, capture_output=True, text=True
            )
            seconds = time.perf_counter() - begin
        cpu, peak = (float(number) for number in done.stderr.split()[-2:])
        facts = json.loads(done.stdout)
        print(
            f"{kind:9} {size / 1e6 / seconds:7.1f} MB/s {seconds:6.1f} s, {cpu:6.1f} s of all cores   "
            f"peak {peak / 1000:4.0f} MB   "
            f"{facts['rows']:,} rows, {facts['duplicates']:,} duplicates, {facts['bad']:,} bad"
        )


RUN = """
import re, sys, time
from headway.cli import main
try:
    main()
finally:
    peak = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]
    print(time.process_time(), peak, file=sys.stderr)
"""

if __name__ == "__main__":
    main()

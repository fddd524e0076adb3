"""How well a model times the words of joined recordings, where the joins are known.

    python benchmarks/speech_data.py digits ARCHIVES strings
    headway train fsdd-strings data.train=strings
    python benchmarks/word_times.py RUN strings/test [--within 0.05]

Of the sounds whose words are all right, each join between two words counts: the silence from the end of one word to the
beginning of the next. A model says when the first word ends and when the second one begins. Both have to be inside the
silence, or at most `--within` seconds outside of it. Prints the word error rate, and the share of joins for which that
holds; and how far the beginnings of words are from the true ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import headway
from headway.tasks.metrics.error_rate import edits


def outside(time: float, silence: tuple[float, float]) -> float:
    """Seconds from a time to a silence; 0 inside."""
    return max(silence[0] - time, time - silence[1], 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--within", type=float, default=0.05)
    asked = parser.parse_args()
    rows = [json.loads(line) for line in (asked.folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    paths = [str(asked.folder / row["file_name"]) for row in rows]
    found = headway.load(asked.model).transcribe(paths, words=True)
    errors = words = right = joins = good = 0
    late: list[float] = []
    for row, transcript in zip(rows, found, strict=True):
        said, true = transcript.text.split(), row["transcription"].split()
        errors, words = errors + edits(said, true), words + len(true)
        if said != true:
            continue
        right += 1
        spoken = [word for segment in transcript.segments for word in segment.words]
        late += [abs(word.start - begin) for word, (begin, _) in zip(spoken, row["times"], strict=True)]
        for number in range(len(true) - 1):
            silence = (row["times"][number][1], row["times"][number + 1][0])
            far = max(outside(spoken[number].end, silence), outside(spoken[number + 1].start, silence))
            joins, good = joins + 1, good + (far <= asked.within)
    print(f"WER {errors / words:.4f} ({errors} of {words} words); {right} of {len(rows)} sounds all right")
    if joins:
        print(f"joins within {asked.within * 1000:.0f} ms: {good / joins:.3f} of {joins}")
        print(f"beginnings of words: median {statistics.median(late):.3f} s from the true ones")


if __name__ == "__main__":
    main()

"""What compare_llguidance.py and compare_xgrammar.py share: the rows they read, their clock, and quantiles."""

import json
import time
from pathlib import Path


def quantiles(values: list[float]) -> dict | None:
    if not values:
        return None
    values = sorted(values)
    at = lambda q: values[int(q * (len(values) - 1))]  # noqa: E731
    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "max": values[-1]}


def microseconds() -> float:
    """Processor time of this thread."""
    return time.thread_time_ns() / 1000


def rows(folder: Path, kinds: tuple[str, ...]):
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.open(encoding="utf-8"):
            row = json.loads(line)
            if row.get("kind") in kinds:
                yield row

"""RUN/metrics.jsonl in short: what the table of runs needs of it, read on from where it was read before.

Of the log lines only the first and the last few are parsed, and those whose loss is null: what stands between them
changes nothing in the table, and parsing thousands of lines with a loss for each step is what would take the time.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from viaduct.plain_files import open_plain_file
from viaduct.run_files import LATEST_STEP

TAIL = 64
"""Bytes before the place where reading goes on: if they differ, the file is another one."""
LONGEST_LINE = 64 << 20
LOG = b'{"kind": "log", "step": '
RATES = 16
"""Speeds kept of the last log lines; their median is shown of a run without summary."""


@dataclass
class MetricsDigest:
    """Digest of a metrics file. `lost`: the first step whose loss was NaN or infinite."""

    inode: int = 0
    offset: int = 0
    tail: str = ""
    step: int = 0
    logs: int = 0
    epoch: float | None = None
    loss: float | None = None
    top1: float | None = None
    best_top1: float | None = None
    best_step: int | None = None
    rates: list[float] = field(default_factory=list)
    first_time: float | None = None
    last_time: float | None = None
    checkpoint: int | None = None
    lost: int | None = None
    damaged: int = 0

    @property
    def images_per_s(self) -> float | None:
        """The median of the last speeds, without that of the first line, which holds the warm-up."""
        rates = self.rates[1:] if self.logs <= RATES and len(self.rates) > 1 else self.rates
        return statistics.median(rates) if rates else None


def read_on(path: str, earlier: MetricsDigest | None) -> MetricsDigest:
    """Return the digest of a file, reading only what was added since `earlier`; empty where there is no file."""
    try:
        file = open_plain_file(path)
    except OSError:
        return MetricsDigest()
    with file:
        facts = os.fstat(file.fileno())
        digest = earlier if earlier and continues(file, facts, earlier) else MetricsDigest(inode=facts.st_ino)
        file.seek(digest.offset)
        tail = bytes.fromhex(digest.tail)
        waiting: deque[bytes] = deque(maxlen=RATES)
        while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):  # the last one may be half-written
            digest.offset += len(line)
            tail = (tail + line)[-TAIL:]
            if digest.first_time is None or not is_usual_log(line):
                take_line(digest, line)
                continue
            digest.logs += len(waiting) == RATES  # the oldest of them is counted and dropped
            waiting.append(line)
    for line in waiting:
        take_line(digest, line)
    digest.tail = tail.hex()
    return digest


def is_usual_log(line: bytes) -> bool:
    """Return True for a log line with a finite loss, as far as its bytes show that without parsing."""
    return line.startswith(LOG) and line.endswith(b"}\n") and b'"loss": null' not in line


def continues(file: Any, facts: os.stat_result, earlier: MetricsDigest) -> bool:
    """Return True if a file is the one that was read before, and longer."""
    if facts.st_ino != earlier.inode or facts.st_size < earlier.offset:
        return False
    tail = bytes.fromhex(earlier.tail)
    file.seek(earlier.offset - len(tail))
    return bool(file.read(len(tail)) == tail)


def take_line(digest: MetricsDigest, line: bytes) -> None:
    try:
        record = json.loads(line)
        kind, step = record["kind"], record["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        digest.damaged += 1
        return
    if type(step) is not int or not 0 <= step < LATEST_STEP:
        digest.damaged += 1
    elif kind == "log":
        take_log(digest, step, record)
    elif kind == "evaluation":
        take_evaluation(digest, step, record)
    elif kind == "checkpoint":
        digest.checkpoint = step


def take_log(digest: MetricsDigest, step: int, record: dict[str, Any]) -> None:
    digest.step, digest.logs = max(digest.step, step), digest.logs + 1
    digest.epoch, digest.loss = number(record.get("epoch")), number(record.get("loss"))
    if digest.loss is None and digest.lost is None:
        digest.lost = first_lost(step, record.get("losses"))
    if (rate := number(record.get("images_per_s"))) is not None:
        digest.rates = [*digest.rates[1 - RATES :], rate]
    take_time(digest, record)


def first_lost(step: int, losses: object) -> int:
    """Return the first step of a log line whose loss is null; the line's own where it does not list its steps."""
    values: Iterable[object] = losses if isinstance(losses, list) else ()
    lost = next((position for position, loss in enumerate(values) if loss is None), None)
    return step if lost is None or not isinstance(losses, list) else step - len(losses) + 1 + lost


def take_evaluation(digest: MetricsDigest, step: int, record: dict[str, Any]) -> None:
    digest.step = max(digest.step, step)
    digest.top1 = number(record.get("top1"))
    if digest.top1 is not None and (digest.best_top1 is None or digest.top1 > digest.best_top1):
        digest.best_top1, digest.best_step = digest.top1, step
    take_time(digest, record)


def take_time(digest: MetricsDigest, record: dict[str, Any]) -> None:
    if (moment := number(record.get("time"))) is not None:
        digest.first_time = digest.first_time if digest.first_time is not None else moment
        digest.last_time = moment


def number(value: object) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return value

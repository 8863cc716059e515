"""Digest of RUN/metrics.jsonl for the table of runs; the next command reads only added lines.

Of the log lines, only the first, the last few and those whose loss is null are parsed: the others change nothing in the
table, and parsing them would take most of the time.
"""

from __future__ import annotations

import json
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from viaduct.growing_file import GrowingFile
from viaduct.run_files import STEP_LIMIT

LOG_START = b'{"kind": "log", "step": '  # beginning of a log line, as training writes it
KEPT_SPEEDS = 16  # last log lines from which the median of images_per_s is computed


@dataclass
class MetricsDigest:
    """Digest of a metrics file up to `offset`. The index stores the values in the order of these fields."""

    inode: int = 0  # 0 if the file could not be opened
    offset: int = 0
    tail: str = ""  # the last bytes before `offset`, in hexadecimal
    step: int = 0  # largest step of a log line or an evaluation
    logs: int = 0  # number of log lines
    epoch: float | None = None
    loss: float | None = None
    top1: float | None = None
    best_top1: float | None = None
    best_step: int | None = None
    speeds: list[float] = field(default_factory=list)  # images/s of the last KEPT_SPEEDS log lines that have it
    first_time: float | None = None
    lost_step: int | None = None  # first step whose loss was NaN or infinite
    damaged: int = 0  # number of lines that are not the record of a step

    @property
    def images_per_s(self) -> float | None:
        """Median of the last speeds, without the speed of the run's first log line, which includes the warm-up."""
        speeds = self.speeds[1:] if self.logs <= KEPT_SPEEDS and len(self.speeds) > 1 else self.speeds
        return statistics.median(speeds) if speeds else None


def update_digest(path: str, earlier: MetricsDigest | None) -> MetricsDigest:
    """Return the digest of a file, reading only the lines that were added since `earlier`.

    The digest is empty if the file cannot be opened. An incomplete last line is left for the next reading.
    """
    digest = earlier or MetricsDigest()

    def restart() -> None:
        nonlocal digest
        digest = MetricsDigest()

    file = GrowingFile(path, restart, digest.inode, digest.offset, bytes.fromhex(digest.tail))
    last_logs: deque[bytes] = deque(maxlen=KEPT_SPEEDS)
    for line in file.read_new_lines():
        if digest.first_time is None or not is_usual_log(line):  # the first line has the time of the beginning
            add_line(digest, line)
            continue
        digest.logs += len(last_logs) == KEPT_SPEEDS  # count the line that `append` drops
        last_logs.append(line)
    for line in last_logs:
        add_line(digest, line)
    digest.inode, digest.offset, digest.tail = file.inode, file.offset, file.tail.hex()
    return digest


def is_usual_log(line: bytes) -> bool:
    """Return True for a log line with a finite loss, judged without parsing."""
    return line.startswith(LOG_START) and line.endswith(b"}\n") and b'"loss": null' not in line


def add_line(digest: MetricsDigest, line: bytes) -> None:
    """Add a line to the digest; a line that is not the record of a step is counted as damaged."""
    try:
        record = json.loads(line)
        kind, step = record["kind"], record["step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        digest.damaged += 1
        return
    if type(step) is not int or not 0 <= step < STEP_LIMIT:
        digest.damaged += 1
    elif kind == "log":
        add_log(digest, step, record)
    elif kind == "evaluation":
        add_evaluation(digest, step, record)


def add_log(digest: MetricsDigest, step: int, record: dict[str, Any]) -> None:
    digest.step, digest.logs = max(digest.step, step), digest.logs + 1
    digest.epoch, digest.loss = number_or_none(record.get("epoch")), number_or_none(record.get("loss"))
    if digest.loss is None and digest.lost_step is None:
        digest.lost_step = find_first_lost(step, record.get("losses"))
    if (speed := number_or_none(record.get("images_per_s"))) is not None:
        digest.speeds = [*digest.speeds[1 - KEPT_SPEEDS :], speed]
    add_time(digest, record)


def find_first_lost(step: int, losses: object) -> int:
    """Return the first step of a log line whose loss is null; the line's last step if it has no loss for each step."""
    if not isinstance(losses, list) or None not in losses:
        return step
    return step - len(losses) + 1 + losses.index(None)


def add_evaluation(digest: MetricsDigest, step: int, record: dict[str, Any]) -> None:
    digest.step = max(digest.step, step)
    digest.top1 = number_or_none(record.get("top1"))
    if digest.top1 is not None and (digest.best_top1 is None or digest.top1 > digest.best_top1):
        digest.best_top1, digest.best_step = digest.top1, step
    add_time(digest, record)


def add_time(digest: MetricsDigest, record: dict[str, Any]) -> None:
    if digest.first_time is None and (moment := number_or_none(record.get("time"))) is not None:
        digest.first_time = moment


def number_or_none(value: object) -> float | None:
    """Return a finite number, None for anything else."""
    # 1e300: an int may be too large for a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return value

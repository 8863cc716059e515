"""metrics.jsonl in short: read on from where it was, and anew where it is another file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from viaduct.runs.metrics import MetricsDigest, update_digest


def line(**fields: Any) -> str:
    record: dict[str, Any] = {
        "kind": "log",
        "step": 0,
        "epoch": 0.1,
        "loss": 1.0,
        "top1": 0.5,
        "lr": 0.1,
        "images_per_s": 100.0,
        "time": 1.0,
    }
    return json.dumps(record | fields) + "\n"


def evaluation(step: int, top1: float | None) -> str:
    return line(kind="evaluation", step=step, top1=top1)


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    line_text = line(step=20, loss=0.5)
    file.write_text(line(step=10) + line_text[:30])
    digest = update_digest(str(file), None)
    assert (digest.step, digest.loss, digest.damaged) == (10, 1.0, 0)
    file.write_text(line(step=10) + line_text)
    digest = update_digest(str(file), digest)
    assert (digest.step, digest.loss) == (20, 0.5)


def test_only_what_was_added_is_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(line(step=10) + evaluation(10, 0.3))
    first = update_digest(str(file), None)
    kept = MetricsDigest(**vars(first))
    kept.logs = 1000  # would be lost if the file were read from its beginning
    with file.open("a") as opened:
        opened.write(line(step=20))
    assert update_digest(str(file), kept).logs == 1001


def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(line(step=10) + line(step=20) + evaluation(20, 0.9))
    digest = update_digest(str(file), None)
    file.write_text(line(step=10) + evaluation(10, 0.2) + "x" * 1000)
    digest = update_digest(str(file), digest)
    assert (digest.step, digest.best_top1, digest.logs) == (10, 0.2, 1)


def test_best_and_last_accuracy_are_distinguished(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(evaluation(10, 0.3) + evaluation(20, 0.8) + evaluation(30, 0.6) + evaluation(40, None))
    digest = update_digest(str(file), None)
    assert (digest.best_top1, digest.best_step, digest.top1) == (0.8, 20, None)


def test_damaged_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    bad = ["{", "[]", "3", '{"kind": "log"}', '{"kind": "log", "step": "5"}', '{"kind": "log", "step": -1}', "[" * 9999]
    file.write_text("".join(text + "\n" for text in bad) + line(step=7))
    digest = update_digest(str(file), None)
    assert (digest.damaged, digest.step) == (len(bad), 7)


def test_the_first_loss_that_is_not_finite_is_found(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(line(step=5) + line(step=10, loss=None, losses=[1.0, 1.0, 1.0, None, None]))
    assert update_digest(str(file), None).lost_step == 9


def test_a_missing_file_and_a_folder_are_empty(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    assert update_digest(str(tmp_path / "metrics.jsonl"), None) == MetricsDigest()
    assert update_digest(str(tmp_path / "none"), None) == MetricsDigest()


def test_lines_between_the_first_and_the_last_are_counted_and_not_parsed(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = [line(step=step, images_per_s=float(step)) for step in range(1, 101)]
    lines[50] = '{"kind": "log", "step": 51, this is never parsed}\n'
    lines[60] = line(step=61, loss=None, losses=[None])
    file.write_text("".join(lines[:20]) + evaluation(20, 0.7) + "".join(lines[20:]))
    digest = update_digest(str(file), None)
    assert (digest.step, digest.logs, digest.damaged, digest.lost_step) == (100, 100, 0, 61)
    assert (digest.best_top1, digest.images_per_s) == (0.7, 92.5)
    full_digest = update_digest(str(file), None)
    assert full_digest == digest

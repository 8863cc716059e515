"""`viaduct evaluate` of a run whose recipe has a metric of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import viaduct

RECIPE_FILE = '''
"""Shapes with a metric of its own."""
from viaduct.recipes import load, replace

def share_of_class_0(logits, labels):
    return (logits.argmax(1) == 0).double().mean()

recipe = replace(load("shapes_taster").recipe, metrics={"zeros": share_of_class_0})
'''


def test_a_run_shows_it_in_its_logs_its_page_and_in_evaluate(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE_FILE)
    words = ("--steps", "2", "--device", "cpu", "--run", tmp_path / "run", "--ranks", "2")
    answer = viaduct("train", tmp_path / "mine.py", *words)
    assert answer.returncode == 0, answer.stderr
    record = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][-2]
    shown = next(line for line in answer.stdout.splitlines() if line.startswith("zeros: "))
    scored = viaduct("evaluate", tmp_path / "run", "--json")
    assert scored.returncode == 0, scored.stderr
    value = json.loads(scored.stdout)
    value = value[0] if isinstance(value, list) else value
    assert f"zeros: {value['zeros']:g}" == shown, record
    assert "zeros" in viaduct("evaluate", tmp_path / "run").stdout
    assert "zeros" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("returned", ["float('nan')", "'good'", "1 / 0"])
def test_whatever_a_metric_returns_the_training_is_kept(tmp_path: Path, returned: str) -> None:
    text = RECIPE_FILE.replace("(logits.argmax(1) == 0).double().mean()", returned)
    (tmp_path / "mine.py").write_text(text)
    words = ("train", tmp_path / "mine.py", "--device", "cpu", "--run", tmp_path / "run")
    answer = viaduct(*words, "--steps", "2", "--batch", "8")
    assert "Traceback" not in answer.stderr
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "step-2" / "manifest.json").read_text())
    if "nan" in returned:
        assert answer.returncode == 0, answer.stderr
        assert manifest["evaluation"]["zeros"] is None
        assert viaduct("evaluate", tmp_path / "run").returncode == 0
        return
    assert answer.returncode == 2
    assert "the recipe's metric 'zeros'" in answer.stderr
    assert "viaduct train --run" in answer.stderr  # after the metric is mended

"""Whole examples on the stage: original, migrated for the NPU and for the MLU, step by step the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from migration.checking import migrate_source
from rehearsal.tf1_scripts import CommandResult, needs_tensorflow, rehearse_ranks, rehearse_script

pytestmark = [needs_tensorflow, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples" / "tf1"
# Where the NPU's operator is written in another order of multiplications, the last bit may differ.
WITHIN = {"sentences_session": 1e-6}
KINDS: dict[str, dict[str, Any]] = {"npu": {}, "distributed": {"distributed": True}, "mlu": {"to": "mlu"}}


def copy_example(name: str, folder: Path) -> Path:
    folder.mkdir()
    script = folder / f"{name}.py"
    script.write_bytes((EXAMPLES / script.name).read_bytes())
    return script


def migrate_example(name: str, folder: Path, **options: Any) -> Path:
    script = copy_example(name, folder)
    script.write_bytes(migrate_source(script.read_text(), path=script.name, **options).after)
    return script


def check_same(original: CommandResult, other: CommandResult, within: float) -> None:
    assert other.code == 0, other.stderr[-3000:]
    assert other.met_limits == []
    assert None not in original.losses
    assert np.allclose(original.losses, other.losses, rtol=within, atol=0)  # type: ignore[arg-type]
    for ours, theirs in ((original.gradients, other.gradients), (original.variables, other.variables)):
        assert set(ours) == set(theirs)
        for name, value in ours.items():
            assert np.allclose(value, theirs[name], rtol=100 * within, atol=10 * within), name


@pytest.mark.parametrize("name", ["autoencoder_monitored", "leaves_keras", "resnet_estimator", "sentences_session"])
def test_a_migrated_example_takes_the_same_steps(name: str, tmp_path: Path) -> None:
    original = rehearse_script("original", copy_example(name, tmp_path / "original"), steps=4)
    assert original.code == 0, original.stderr[-3000:]
    assert len(original.losses) == 4
    assert len(original.gradients) >= 8
    for kind, options in KINDS.items():
        script = migrate_example(name, tmp_path / kind, **options)
        check_same(original, rehearse_script("mlu" if kind == "mlu" else "npu", script, steps=4), WITHIN.get(name, 0.0))


def test_two_ranks_of_the_horovod_example_take_the_same_steps(tmp_path: Path) -> None:
    script = migrate_example("waves_horovod", tmp_path / "npu", distributed=True)
    plain = copy_example("waves_horovod", tmp_path / "original")
    originals, npu = rehearse_ranks("original", plain, 2, steps=4), rehearse_ranks("npu", script, 2, steps=4)
    assert originals[0].variables == originals[1].variables, "ranks stay together"
    assert originals[0].losses != originals[1].losses, "and each has its own data"
    for original, other in zip(originals, npu, strict=True):
        assert original.code == 0, original.stderr[-3000:]
        check_same(original, other, 0.0)

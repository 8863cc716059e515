"""What `viaduct carry` refuses and writes, and its verdict if there is nothing to compare."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from carrying.carry_scripts import ON_THE_NPU, TORCH, carry_copy, carry_script
from carrying.failed_runs import make_failed_run
from carrying.sample_carries import make_carry_result
from carrying.sample_observations import make_observation
from forked_viaduct import start_viaduct, viaduct
from viaduct.carrying import carry as carrying


def test_a_perturbed_run_does_not_measure_a_golden_run_that_it_did_not_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = make_failed_run(tmp_path, [], "")
    summary = replace(failed.summary, script_exit_code=0, steps=3)
    original = replace(failed, summary=summary, observations=make_observation())
    intended = make_observation(shift=0.5)
    result = make_carry_result(tmp_path, original, migrated=replace(original, name="migrated", observations=intended))
    result.perturbed = replace(original, name="shaken")
    monkeypatch.setattr(
        carrying, "execute", lambda name, *_: replace(original, name=name, observations=intended), raising=True
    )
    monkeypatch.setattr(carrying, "write_reference", lambda *_: tmp_path / "train.py")
    agreement = carrying.judge_with_intended_changes(result, {"rule": "drops a batch"}, False, print)
    assert agreement is not None
    assert agreement.verdict == "same"
    assert (result.golden_run.name, result.finished_perturbed) == ("reference", None)


@pytest.mark.slow
def test_what_is_there_is_not_overwritten_and_with_force_it_is_kept_beside(tmp_path: Path) -> None:
    (tmp_path / "carried").mkdir()
    (tmp_path / "carried" / "mine.txt").write_text("mine")
    (tmp_path / "model.pth").write_bytes(b"x" * 100)
    refused = carry_script(tmp_path, TORCH)
    assert (refused.code, refused.record) == (2, {})
    assert "exists already" in refused.stderr
    assert "Traceback" not in refused.stderr
    forced = carry_copy(tmp_path, TORCH, ON_THE_NPU, "--steps", "2", "--force")
    assert forced.code == 3, forced.stdout + forced.stderr
    assert (tmp_path / "carried.1" / "mine.txt").read_text() == "mine"
    assert forced.record["bitwise"]
    assert [len(forced.record["runs"]), forced.record["runs"]["migrated"]["steps"]] == [2, 2]
    assert "this executes train.py with your rights" in forced.stderr
    assert (tmp_path / "train.py").read_text() == TORCH
    page = (forced.out / "report.html").read_text()
    for heading in (
        "Not proved: what ran agrees",
        "Edits that were executed",
        "Files that were executed",
        "Losses",
        "Drift by layer",
        "Limits",
        "Changes",
        "On the real machine",
    ):
        assert heading in page
    assert "https://" not in page


def test_a_folder_is_carried_by_the_name_of_its_script(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TORCH)
    (project / "table.csv").write_bytes(b"x" * 2**20)
    answer = viaduct("carry", ".", "--out", "../cc", "--entry", "train.py", "--steps", "1", cwd=project)
    assert "this executes train.py with your rights" in answer.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interruption_is_no_verdict_and_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    source = "import time, torch\nopen('table.csv', 'r+b').write(b'XX')\nprint('written')\ntime.sleep(100)\n"
    (tmp_path / "train.py").write_text(source)
    (tmp_path / "table.csv").write_bytes(b"x" * 2**20)
    (tmp_path / "carried").mkdir()
    (tmp_path / "carried" / "mine.txt").write_text("mine")
    with start_viaduct("carry", "train.py", "--force", cwd=tmp_path) as command:
        command.wait_for(lambda _: "written" in command.stderr.read_text())
        os.kill(command.pid, number)
        output, stderr = command.communicate(60)
    assert (command.returncode, output) == (code, ""), stderr
    assert "viaduct carry: interrupted while the original ran; the output folder is as it was before." in stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["carried", "table.csv", "train.py"]
    assert [path.name for path in (tmp_path / "carried").iterdir()] == ["mine.txt"]
    assert (tmp_path / "table.csv").read_bytes() == b"x" * 2**20


def test_an_original_that_fails_is_no_proof_and_its_line_is_named(tmp_path: Path) -> None:
    source = "import torch\n\n\ndef read():\n    return open('data.bin')\n\n\nread()\n"
    result = carry_copy(tmp_path, source, source)
    assert (result.code, result.record["verdict"]) == (2, "could not run")
    json.loads((result.out / "carry.json").read_text(), parse_constant=pytest.fail)
    assert "data.bin" in result.stdout
    assert "At fault: a file or other input that is not there, original train.py:5." in result.stdout
    assert result.record["fault"]["whose"] == "file"
    assert "migrated" not in result.record["runs"]


def test_a_migrated_script_that_the_card_refuses_is_no_pass(tmp_path: Path) -> None:
    result = carry_copy(tmp_path, TORCH, ON_THE_NPU.replace("x.npu(non_blocking=True)", "x.cuda()"), "--steps", "2")
    assert (result.code, result.record["verdict"]) == (2, "could not run")
    assert result.record["fault"]["whose"] == "limit"
    assert [hit["name"] for hit in result.record["limits"]] == ["cuda-left"]
    assert "The last lines that the failed run printed." in (result.out / "report.html").read_text()


@pytest.mark.slow
def test_a_script_that_is_excluded_does_not_keep_another_from_being_proved(tmp_path: Path) -> None:
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text(TORCH)
    words = ("carry", ".", "--entry", "train.py", "--steps", "2")
    complete = viaduct(*words, "--out", "../whole", cwd=tmp_path)
    assert "1 file that the migration rewrote was never executed: other.py" in complete.stdout
    alone = viaduct(*words, "--out", "../alone", "--exclude", "other.py", cwd=tmp_path)
    assert alone.returncode == 0, alone.stdout
    assert (tmp_path.parent / "alone" / "migrated" / "other.py").read_text() == TORCH


def test_a_training_without_loss_or_weights_is_not_proved(tmp_path: Path) -> None:
    source = "import torch\n\n\ndef step(a):\n    return a * 1.5\n\n\na = torch.ones(3).cuda()\na = step(step(a))\n"
    found = carry_script(tmp_path, source, "--step-at", "step")
    assert found.code == 3, found.stdout + found.stderr
    assert [doubt["text"] for doubt in found.record["not_proved"]] == [
        "No loss was recorded, so the training could not be compared step by step."
    ]

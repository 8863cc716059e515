"""A bank's choices in training: said, recorded, the same after a resume; without a bank nothing changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from training import tiny_runs
from viaduct import devices
from viaduct.errors import BadRun
from viaduct.recipes import LoadedRecipe
from viaduct.training.loop import Training
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.session import run_training
from viaduct.training.tuning_worker import make_step_signature
from viaduct.tuning.applying import observe_calls
from viaduct.tuning.bank import BadBank, Bank, Entry, Verdict
from viaduct.tuning.fingerprint import read_fingerprint
from viaduct.tuning.location import locate_bank
from viaduct.tuning.operators import conv2d, optimizer
from viaduct.verbs._train_arguments import choose_bank

NAME = "tiny"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """A bank whose choices are slower, but other bits: contiguous convolutions without oneDNN, updates in a loop."""
    training = make_training(tmp_path / "scratch")
    batch = next(training.begin_training())
    calls = observe_calls(training.computation.network, lambda: training.computation.compute_outputs(batch.images))
    update = optimizer.describe(training.optimizer)
    assert update is not None
    choice = {**conv2d.DEFAULT, "layout": "contiguous", "forward_onednn": False, "backward_onednn": False}
    convolutions = [call.signature for call in calls if call.signature.kind == "conv2d"]
    entries = [Entry(signature, choice, conv2d.DEFAULT, 2, 1, 0, installed=True) for signature in convolutions]
    entries.append(Entry(update, {"implementation": "loop"}, optimizer.DEFAULT, 2, 1, 0, installed=True))
    path = tmp_path / "bank"
    path.mkdir()
    verdict = Verdict(
        "another step", {entry.signature.key: entry.choice for entry in entries}, 10.0, 8.0, 1.25, 9, True
    )
    made = {entry.signature.key: entry for entry in entries}
    Bank(path).update(read_fingerprint("cpu"), lambda stored: replace(stored, entries=made).with_verdict(verdict))
    return path


def recipe() -> Any:
    return replace(tiny_runs.RECIPE, model=tiny_runs.build_dropout_network)


def make_training(path: Path) -> Training:
    device, device_name = devices.pick("cpu")
    path.mkdir()
    return Training(recipe(), RunDir(path), tiny_runs.make_images(None), device, device_name, callbacks=[])


def train(run: Path, bank: Path | None, steps: int) -> dict[str, torch.Tensor]:
    loaded = LoadedRecipe(NAME, replace(recipe(), steps=steps), "", None)
    location = locate_bank(bank) if bank else None
    run_training(TrainingRequest(loaded, RunDir(run), None, "cpu", "auto", "viaduct train", bank=location))
    return load_file(run / "model.safetensors")


def read_tuning(run: Path) -> Any:
    return json.loads((run / "recipe.json").read_text())["tuning"]


def same_bits(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_choices_are_reported_recorded_and_the_same_after_a_resume(
    tmp_path: Path, bank: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uninterrupted = train(tmp_path / "whole", bank, steps=8)
    output = capfd.readouterr().err
    assert f"Bank {bank} (--bank): 2 choices: 1 module, optimizer loop." in output
    recorded = read_tuning(tmp_path / "whole")
    assert len(recorded["choices"]) == 2
    train(tmp_path / "parts", bank, steps=4)
    resumed = train(tmp_path / "parts", None, steps=8)  # asks no bank: what the run was begun with counts
    assert "Tuned as when the run was begun, 2 choices: 1 module, optimizer loop." in capfd.readouterr().err
    assert same_bits(uninterrupted, resumed)
    assert read_tuning(tmp_path / "parts") == recorded
    assert json.loads((tmp_path / "parts" / "summary.json").read_text())["tuning"] == recorded


def test_choices_that_a_resumed_run_cannot_use_are_not_called_used(
    tmp_path: Path, bank: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path / "run", bank, steps=4)
    record = json.loads((tmp_path / "run" / "recipe.json").read_text())
    record["tuning"]["choices"]["conv2d of another network"] = {"layout": "contiguous"}
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(record))
    train(tmp_path / "run", None, steps=8)
    output = capfd.readouterr().err
    assert "Tuned as when the run was begun" not in output
    assert "Tuned with 2 choices: 1 module, optimizer loop. 1 of the 3 choices" in output
    assert "are not used: they fit no operator of this session." in output


def test_a_run_that_was_begun_without_a_bank_keeps_its_bits(
    tmp_path: Path, bank: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    uninterrupted = train(tmp_path / "whole", None, steps=8)
    assert read_tuning(tmp_path / "whole") is None
    train(tmp_path / "parts", None, steps=4)
    resumed = train(tmp_path / "parts", bank, steps=8)
    assert "not used, because this run was begun without" in capfd.readouterr().err
    assert same_bits(uninterrupted, resumed)


def test_entries_of_another_version_are_not_used_and_that_is_reported(
    tmp_path: Path, bank: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = read_fingerprint("cpu")
    file = Bank(bank).find_file(here)
    other = replace(here, torch="1.0.0")
    file.rename(Bank(bank).find_file(other))
    moved = Bank(bank).find_file(other)
    moved.write_text(moved.read_text().replace(f'"torch": "{here.torch}"', '"torch": "1.0.0"'))
    train(tmp_path / "run", bank, steps=2)
    assert f"its entries are of another device or version (torch 1.0.0, here {here.torch})" in capfd.readouterr().err
    assert read_tuning(tmp_path / "run") is None


def test_choices_that_no_whole_step_was_measured_with_are_not_used(
    tmp_path: Path, bank: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = Bank(bank).find_file(read_fingerprint("cpu"))
    record = json.loads(file.read_text())
    assert all(entry["installed"] for entry in record["entries"].values())
    file.write_text(json.dumps({**record, "verdicts": {}}))
    train(tmp_path / "run", bank, steps=2)
    assert "nothing is applied" in capfd.readouterr().err
    assert read_tuning(tmp_path / "run") is None


def test_a_step_without_gain_uses_nothing_of_what_other_recipes_installed(
    tmp_path: Path, bank: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    step = make_step_signature(make_training(tmp_path / "again"), NAME)
    verdict = Verdict(step.key, {}, 10.0, 10.0, 1.0, 9, False)
    Bank(bank).update(read_fingerprint("cpu"), lambda stored: stored.with_verdict(verdict))
    train(tmp_path / "run", bank, steps=2)
    assert "nothing is applied" in capfd.readouterr().err
    assert read_tuning(tmp_path / "run") is None


def test_recorded_choices_that_are_damaged_are_refused(tmp_path: Path, bank: Path) -> None:
    train(tmp_path / "run", bank, steps=2)
    file = tmp_path / "run" / "recipe.json"
    record = json.loads(file.read_text())
    record["tuning"] = {"choices": [1]}
    file.write_text(json.dumps(record))
    with pytest.raises(BadRun, match="its field 'tuning' cannot be read"):
        train(tmp_path / "run", None, steps=4)


def test_the_users_own_bank_is_used_without_being_named_and_that_is_reported(
    tmp_path: Path, bank: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "data" / "viaduct" / "bank"
    own.parent.mkdir(parents=True)
    bank.rename(own)
    location = locate_bank(None, {"XDG_DATA_HOME": str(tmp_path / "data")})
    loaded = LoadedRecipe(NAME, replace(recipe(), steps=2), "", None)
    run_training(TrainingRequest(loaded, RunDir(tmp_path / "run"), None, "cpu", "auto", "viaduct train", bank=location))
    assert f"Bank {own} (your default bank): 2 choices: 1 module, optimizer loop." in capfd.readouterr().err


def test_no_bank_is_used_where_none_is_requested_or_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path))
    assert choose_bank(Path("none")) is None
    found = choose_bank(None)
    assert found is not None
    assert found.origin == "TUNE_BANK_PATH"
    monkeypatch.delenv("TUNE_BANK_PATH")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "absent"))
    assert choose_bank(None) is None


def test_a_file_for_a_bank_is_called_a_file(tmp_path: Path) -> None:
    (tmp_path / "afile").touch()
    with pytest.raises(BadBank, match=r"is a file\.") as refused:
        choose_bank(tmp_path / "afile")
    assert "tune run" not in str(refused.value), "which would refuse it, too"

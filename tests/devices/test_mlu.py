from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.devices import hardware
from viaduct.devices.mlu import DEVICE as mlu

from .conftest import Install


def test_a_hidden_card_names_the_variable_that_hides_it(monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install("mlu", cards=0)
    monkeypatch.delenv("CN_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("MLU_VISIBLE_DEVICES", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert mlu.find_problem() == "no card visible; MLU_VISIBLE_DEVICES=''\nUnset it, or list card numbers: 0,1."


def test_the_version_of_cntoolkit_is_read_from_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "version.txt").write_text("Neuware Version 3.9.0\n")
    monkeypatch.setenv("NEUWARE_HOME", str(tmp_path))
    assert mlu.get_versions()["cntoolkit"] == "3.9.0"


def test_the_version_of_the_driver_is_read_from_its_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note = tmp_path / "0000:0f:00.0" / "information"
    note.parent.mkdir()
    note.write_text("Device name: MLU370-X8\nDriver Version: v5.10.22\n")
    monkeypatch.setattr(hardware, "CAMBRICON_DRIVERS", tmp_path)
    assert mlu.get_versions()["driver"] == "5.10.22"

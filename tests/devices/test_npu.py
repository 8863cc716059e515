from __future__ import annotations

import platform
from pathlib import Path

import pytest

from viaduct.devices import hardware
from viaduct.devices.npu import DEVICE as npu

from .conftest import Install


def test_a_hidden_card_names_the_variable_that_hides_it(monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install("npu", cards=0)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,0")
    assert npu.find_problem() == (
        "no card visible; ASCEND_RT_VISIBLE_DEVICES='1,0'\nUnset it, or list card numbers in ascending order: 0,1."
    )


@pytest.mark.parametrize("variable", ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"])
def test_the_version_of_cann_is_read_from_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    note = tmp_path / f"{platform.machine()}-linux" / "ascend_toolkit_install.info"
    note.parent.mkdir()
    note.write_text("package_name=Ascend-cann-toolkit\nversion=8.2.RC1\ninnerversion=V100R001\n")
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert npu.get_versions()["cann"] == "8.2.RC1"


def test_the_version_of_the_driver_is_read_from_its_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    note = tmp_path / "version.info"
    note.write_text("Version=25.2.0\nascendhal_version=7.35.23\n")
    monkeypatch.setattr(hardware, "ASCEND_DRIVER", note)
    assert npu.get_versions()["driver"] == "25.2.0"

"""Output of `viaduct devices` without torch."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from viaduct.devices import hardware, names
from viaduct.devices.base import DeviceFacts


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Pretend a machine without cards, drivers and plug-ins; return its root folder."""
    monkeypatch.setattr(hardware, "ROOT", tmp_path)
    for card in hardware.CARDS_BY_NAME.values():
        for variable in card.toolkit_version.variables if card.toolkit_version else ():
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(hardware, "find_package_version", lambda package: None)
    (tmp_path / "dev").mkdir()
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def facts_of(name: str) -> DeviceFacts:
    return next(facts for facts in hardware.collect_facts_without_torch() if facts.name == name)


@pytest.mark.usefixtures("empty")
def test_every_device_is_named_with_what_it_needs() -> None:
    listed = hardware.collect_facts_without_torch()
    assert [facts.name for facts in listed] == list(names())
    assert not any(facts.present for facts in listed)
    assert all("pip install 'viaduct[train]'" in (facts.missing or "") for facts in listed)
    assert facts_of("npu").missing == (
        "torch and torch_npu are not installed\n"
        "Install the vendor's torch and torch_npu, then: pip install 'viaduct[train]'"
    )
    assert facts_of("npu").versions == facts_of("cuda").versions == {}


def test_cards_that_the_kernel_shows_are_counted(empty: Path) -> None:
    for name in ("davinci0", "davinci1", "davinci_manager", "nvidia0", "nvidiactl", "cambricon_ctl"):
        (empty / "dev" / name).touch()
    assert "the system shows 2 cards" in (facts_of("npu").missing or "")
    assert "the system shows 1 card\n" in (facts_of("cuda").missing or "")
    assert "the system shows" not in (facts_of("mlu").missing or "")


@pytest.mark.usefixtures("empty")
def test_an_installed_plug_in_lacks_torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "find_package_version", {"torch_npu": "2.5.1"}.get)
    assert (facts_of("npu").missing or "").startswith("torch is not installed\n")
    assert facts_of("npu").versions == {"torch_npu": "2.5.1"}


@pytest.mark.parametrize(
    ("name", "file", "text", "version"),
    [
        (
            "cuda",
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue\n",
            "580.159.03",
        ),
        ("npu", "usr/local/Ascend/driver/version.info", "Version=25.2.0\nascendhal_version=7.35.23\n", "25.2.0"),
        (
            "mlu",
            "proc/driver/cambricon/mlus/0000:0f:00.0/information",
            "Device name: MLU370-X8\nDriver Version: v5.10.22\n",
            "5.10.22",
        ),
    ],
)
def test_drivers_are_shown(empty: Path, name: str, file: str, text: str, version: str) -> None:
    write(empty / file, text)
    assert facts_of(name).versions == {"driver": version}


CANN = "package_name=Ascend-cann-toolkit\nversion=8.2.RC1\ninnerversion=V100R001\n"
CANN_FILE = f"{platform.machine()}-linux/ascend_toolkit_install.info"


@pytest.mark.parametrize("variable", ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"])
def test_the_version_of_cann_is_read_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, empty: Path, variable: str
) -> None:
    write(empty / "cann" / CANN_FILE, CANN)
    write(empty / "usr/local/Ascend/cann" / CANN_FILE, "version=7.0\n")
    assert facts_of("npu").versions == {"cann": "7.0"}
    monkeypatch.setenv(variable, "/cann")
    assert facts_of("npu").versions == {"cann": "8.2.RC1"}


def test_the_version_of_cntoolkit_is_read_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, empty: Path
) -> None:
    write(empty / "neuware" / "version.txt", "Neuware Version 3.9.0\n")
    monkeypatch.setenv("NEUWARE_HOME", "/neuware")
    assert facts_of("mlu").versions == {"cntoolkit": "3.9.0"}


@pytest.mark.parametrize("version", ["4.20.6", "v4.20.6", "4.20.18", "5.10.22", "4.20.6-1", "4.21"])
def test_a_driver_that_is_new_enough_needs_no_words(version: str) -> None:
    assert hardware.describe_old_driver("mlu", version) is None


@pytest.mark.parametrize("version", ["4.20.5", "v4.9.12", "4.20", "3.99.99"])
def test_a_driver_that_is_too_old_is_named_with_what_is_needed(version: str) -> None:
    note = hardware.describe_old_driver("mlu", version) or ""
    assert f"driver {version} is older than 4.20.6" in note
    assert "Update the driver" in note


def test_a_driver_of_unknown_version_is_named_only_where_there_are_cards(empty: Path) -> None:
    assert hardware.describe_old_driver("mlu", None) is None
    (empty / "dev" / "cambricon_dev0").touch()
    assert "not known (nothing in /proc/driver/cambricon" in (hardware.describe_old_driver("mlu", None) or "")
    assert "not known (version 'none')" in (hardware.describe_old_driver("mlu", "none") or "")


def test_drivers_of_which_no_limit_is_known_are_not_judged() -> None:
    assert hardware.describe_old_driver("npu", "1.0") is None
    assert hardware.describe_old_driver("cuda", None) is None

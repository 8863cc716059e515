from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from viaduct import devices
from viaduct.devices import card_check
from viaduct.devices.base import DeviceFacts
from viaduct.verbs.devices import ROWS, format_cells, main


def viaduct_devices(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def fail(device: object, index: int, precision: str) -> tuple[float, float]:
    raise RuntimeError("aicore exception")


def test_asking_for_help_does_not_import_torch_or_rich() -> None:
    script = "import sys, viaduct.verbs.devices; print({'torch', 'rich.table'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_table_shows_every_device_and_how_to_get_the_missing_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.get("npu"), "find_problem", lambda: "torch_npu is not installed\nInstall CANN.")
    result = viaduct_devices()
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("cpu", "cuda", "mlu", "npu", "gloo"))
    assert "npu: torch_npu is not installed\n  Install CANN.\n" in result.stdout


def test_json_is_one_object_with_every_device() -> None:
    result = viaduct_devices("--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert set(report) == {"devices", "notes"}
    assert [device["name"] for device in report["devices"]] == list(devices.names())
    cpu = report["devices"][0]
    assert cpu["present"]
    assert cpu["collective"] == "gloo"
    assert cpu["memory_free_bytes"] > 0


def test_unknown_free_memory_is_not_shown_as_none_left() -> None:
    facts = DeviceFacts("npu", present=True, versions={}, count=1, memory_free_bytes=None)
    assert format_cells(facts)[ROWS.index("memory free")] == ""


def test_testing_trains_on_what_is_here_and_exits_0() -> None:
    result = viaduct_devices("--test")
    assert result.exit_code == 0
    assert "fp32" in result.stdout
    assert " ms" in result.stdout
    assert "failed" not in result.stdout


def test_json_carries_the_tests_too() -> None:
    result = viaduct_devices("--test", "--json")
    tests = json.loads(result.stdout)["tests"]
    assert result.exit_code == 0
    assert (tests[0]["device"], tests[0]["precision"], tests[0]["ok"]) == ("cpu", "fp32", True)


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_card_that_fails_makes_it_exit_1_and_say_why(monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]) -> None:
    monkeypatch.setattr(card_check, "_measure_step", fail)
    result = viaduct_devices("--test", *how)
    assert result.exit_code == 1
    assert "aicore exception" in result.stdout


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_an_old_driver_is_shown_as_a_note(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: tuple[str, ...]
) -> None:
    folder = tmp_path / "proc/driver/cambricon/mlus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Driver Version : v4.9.12\n")
    monkeypatch.setattr("viaduct.devices.hardware.ROOT", tmp_path)
    result = viaduct_devices(*how)
    assert result.exit_code == 0
    assert "mlu: driver 4.9.12 is older than 4.20.6" in result.stdout

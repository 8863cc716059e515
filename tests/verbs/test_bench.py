from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from forked_viaduct import start_viaduct, viaduct
from viaduct.benching import peers
from viaduct.benching.record import RECORD_PREFIX
from viaduct.errors import BadData
from viaduct.reporting.results import read_results, render
from viaduct.verbs.bench import main, run_bench

QUICK = ("bench", "shapes_taster", "--device", "cpu", "--batch", "2", "--steps", "1", "--windows", "2")
SHORT = ("--batch", "2", "--steps", "1", "--windows", "1", "--warmup", "0", "--no-profile")


def in_this_process(*words: str) -> Result:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, [*words, "--device", "cpu"], catch_exceptions=False)


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    return record


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shapes_tester"], "Closest is 'shapes_taster'"),
        (["shapes_taster", "--peer", "torchvison"], "There are: torchvision, timm, plain."),
        (["shapes_taster", "--peer", "plain", "--way", "fast"], "There are: eager, compiled, reduce-overhead"),
        (["shapes_taster", "--precision", "bf17"], "precision.compute=bf17"),
        (["shapes_taster", "--set", "optimizer.lr"], "has no value"),
        (["shapes_taster", "--batch", "0"], "--batch"),
        (["shapes_taster", "--windows", "0"], "--windows"),
        (["shapes_taster", "--json", "figures.txt"], "--json figures.txt.json"),
        (["shapes_taster", "--json", "nowhere/figures.json"], "there is no folder nowhere"),
        (["shapes_taster", "--json", "."], "--json . is a folder."),
        (["shapes_taster", "--peer", ""], "no peer is named in ''"),
        (["shapes_taster", "--peer", "plain", "--way", ""], "no way is named in ''"),
        (["shapes_taster", "--compile", "block"], "--compile"),
        (["shapes_taster", "--device", "cpu", "--kernels", "on"], "they are for cuda, and this run is on cpu"),
        (["shapes_taster", "--sink", "4", "--set", "sink=3"], "--sink 4 and --set sink=3 contradict each other."),
        (["shapes_taster", "--batch", "4", "--set", "data.global_batch=3"], "--batch 4 and --set data.global_batch=3"),
        (["shapes_taster", "--device", "gpu"], "no device called 'gpu'"),
        (["shapes_taster", "--device", "cpu", "--data", "nowhere"], "takes no --data"),
        (["resnet50_imagenet", "--device", "cpu", "--data", "nowhere"], "nowhere"),
        (["resnet50_imagenet", "--device", "cpu", "--batch", "1", "--size", "32"], "larger --batch"),
        (["shapes_taster", "--device", "cpu", "--batch", "1000000", "--size", "1024"], "a smaller --batch or --size"),
    ],
)
def test_a_mistake_is_answered_with_a_message_and_writes_nothing(
    words: list[str], message: str, tmp_path: Path
) -> None:
    answer = viaduct("bench", *words, cwd=tmp_path)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stderr.count("There are:") <= 1
    assert answer.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_something_else_is_not_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "precious.json"
    precious.write_text('{"mine": 1}')
    answer = viaduct(*QUICK, "--json", precious)
    assert answer.returncode == 2
    assert "it stays as it is" in answer.stderr
    assert precious.read_text() == '{"mine": 1}'


@pytest.mark.parametrize(
    "words",
    [
        ["resnet50_imagenet", "--data", "nowhere"],
        ["shapes_taster", "--kernels", "on"],
        ["shapes_taster", "--peer", "plian"],
    ],
)
def test_what_a_run_would_refuse_is_refused_before_anything_is_measured(words: list[str], tmp_path: Path) -> None:
    answer = viaduct("bench", *words, "--device", "cpu", cwd=tmp_path)
    assert answer.returncode == 2
    assert "measuring" not in answer.stderr


def test_a_link_is_written_through_and_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "figures.json"
    link.symlink_to(tmp_path / "far" / "kept.json")
    assert viaduct(*QUICK, "--no-profile", "--json", link).returncode == 0
    assert link.is_symlink()
    assert read(tmp_path / "far" / "kept.json")["verb"] == "bench"


@pytest.mark.parametrize("name", ["gone/figures.json", "file/figures.json"])
def test_a_place_that_a_link_leads_to_is_tried_before_the_work(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    link = tmp_path / "figures.json"
    link.symlink_to(tmp_path / name)
    answer = viaduct(*QUICK, "--json", link)
    assert answer.returncode == 2
    assert "cannot be written" in answer.stderr
    assert "measuring" not in answer.stderr


def test_figures_that_cannot_be_written_at_the_end_are_shown_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, record: dict[str, Any]) -> None:
        raise BadData(f"{path} cannot be written: No space left on device.")

    monkeypatch.setattr("sys.argv", ["viaduct"])
    monkeypatch.setattr("viaduct.benching.record.write_record", full)
    with pytest.raises(BadData, match="No space left"):
        run_bench({**defaults(), "recipe": "shapes_taster", "json": tmp_path / "figures.json"})
    assert "images/s" in capsys.readouterr().out


def test_ctrl_c_after_the_figures_were_written_does_not_say_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(record: dict[str, Any], written_to: Path | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["viaduct"])
    monkeypatch.setattr("viaduct.benching.table.print_record", interrupt)
    app = typer.Typer()
    app.command()(main)
    figures = tmp_path / "figures.json"
    answer = CliRunner().invoke(app, ["shapes_taster", "--device", "cpu", *SHORT, "--json", str(figures)])
    assert answer.exit_code != 0
    assert read(figures)["verb"] == "bench"
    assert "nothing was written" not in answer.output + capsys.readouterr().err


def defaults() -> dict[str, Any]:
    """Every flag as it is when nobody says anything, but for those that make it short."""
    given = {name: parameter.default for name, parameter in inspect.signature(main).parameters.items()}
    return {**given, "device": "cpu", "batch": 2, "steps": 1, "windows": 1, "warmup": 0, "profile": False}


def in_a_shell(words: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """`viaduct` in a Python of its own: how an interpreter ends is the point."""
    line = f"set -o pipefail; {sys.executable} -m viaduct {' '.join(QUICK)} --windows 1 --no-profile {words}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, timeout=600)


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    answer = in_a_shell("--json figures.json 2>stderr | (exec <&-; sleep 0.1)", tmp_path)
    assert answer.returncode == 0
    assert read(tmp_path / "figures.json")["images_per_s"] > 0
    assert "Error" not in (tmp_path / "stderr").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")
def test_a_full_disk_behind_standard_output_is_reported_with_a_message(tmp_path: Path) -> None:
    answer = in_a_shell("> /dev/full", tmp_path)
    assert answer.returncode == 2
    assert "the figures cannot be printed: No space left on device." in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "Exception ignored" not in answer.stderr


def test_ctrl_c_ends_it_in_one_line_and_writes_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    with start_viaduct(*QUICK[:-1], "100000", "--json", figures) as bench:
        end = time.monotonic() + 600
        while "window 1 of" not in bench.stderr.read_text():
            assert time.monotonic() < end, bench.stderr.read_text()
            time.sleep(0.02)
        os.kill(bench.pid, signal.SIGINT)
        out, stderr = bench.communicate(timeout=600)
    assert bench.returncode == 130
    assert stderr.splitlines()[-1] == "Interrupted: nothing was written."
    assert "Traceback" not in stderr
    assert out == ""
    assert not figures.exists()


def test_asking_for_help_does_not_import_torch() -> None:
    script = "import sys, viaduct.verbs.bench; print({'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_an_earlier_result_is_replaced_and_figures_can_go_into_the_results(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    figures.write_bytes(RECORD_PREFIX + b"}")
    assert viaduct(*QUICK, "--no-profile", "--json", figures).returncode == 0
    page = render(read_results(tmp_path))
    assert "shapes_taster: batch 2, 32x32" in page
    assert "images/s" in page


FAKE = """
from torch import nn
def resnet18(weights, num_classes):
    if FAILS:
        raise RuntimeError("CUDA out of memory. Tried to allocate 3.00 GiB")
    head = nn.Linear(8, num_classes)
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
"""


@pytest.mark.parametrize("fails", [True, False])
def test_a_peer_that_fails_is_named_and_one_that_runs_is_measured(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchvision" / "models").mkdir(parents=True)
    (tmp_path / "torchvision" / "__init__.py").touch()
    (tmp_path / "torchvision" / "models" / "__init__.py").write_text(f"FAILS = {fails}\n{FAKE}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sys.argv", ["viaduct"])
    for name in [name for name in sys.modules if name.partition(".")[0] in peers.PACKAGES]:
        monkeypatch.delitem(sys.modules, name)
    figures, quick = tmp_path / "figures.json", ("--batch", "2", "--size", "32", "--steps", "1", "--windows", "2")
    words = (
        "resnet18_imagenet",
        *quick,
        "--no-profile",
        "--peer",
        "torchvision",
        "--way",
        "eager",
        "--json",
        str(figures),
    )
    result = in_this_process(*words)
    for name in [name for name in sys.modules if name.partition(".")[0] in peers.PACKAGES]:
        del sys.modules[name]
    assert result.exit_code == 0
    record = read(figures)
    assert record["images_per_s"] > 0
    assert [peer["variant"] for peer in record["peers"]] == [] if fails else ["torchvision resnet18, eager"]
    if fails:
        assert "out of memory" in record["left_out"]["torchvision resnet18, eager"]
        assert "Left out: torchvision resnet18, eager" in result.output
    else:
        assert record["peers"][0]["ours_is"] < 1  # it has one convolution


@pytest.mark.slow
def test_a_start_is_a_process_of_its_own_that_ends_with_its_first_step(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    answer = viaduct(*QUICK, "--no-profile", "--starts", "--json", figures)
    assert answer.returncode == 0, answer.stderr
    first, *_, last = read(figures)["starts"]["viaduct"]
    assert first["whole_s"] > first["build_s"] + first["first_step_s"] > 0
    assert last["imports_s"] > 0.2  # torch is not there yet
    assert "From the start of a process to its first step" in answer.stdout

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from command import begun, viaduct
from data.record_files import write_split
from viaduct.benching import peers
from viaduct.benching.record import RECORD_PREFIX
from viaduct.errors import BadData
from viaduct.reporting.results import read_results, render
from viaduct.verbs.bench import main, run_bench

QUICK = ("bench", "shapes_taster", "--device", "cpu", "--batch", "2", "--steps", "1", "--windows", "2")


def in_this_process(*words: str) -> Result:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, [*words, "--device", "cpu"], catch_exceptions=False)


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    return record


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_a_mistake_is_answered_in_words_and_writes_nothing(words: list[str], said: str, tmp_path: Path) -> None:
    answer = viaduct("bench", *words, cwd=tmp_path)
    assert answer.returncode == 2
    assert said in answer.stderr
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


def defaults() -> dict[str, Any]:
    """Every flag as it is when nobody says anything, but for those that make it short."""
    given = {name: parameter.default for name, parameter in inspect.signature(main).parameters.items()}
    return {**given, "device": "cpu", "batch": 2, "steps": 1, "windows": 1, "warmup": 0, "profile": False}


def in_a_shell(words: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """`viaduct` in a Python of its own: how an interpreter ends is the point."""
    line = f"set -o pipefail; {sys.executable} -m viaduct {' '.join(QUICK)} --windows 1 --no-profile {words}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, timeout=600)


def test_a_reader_who_leaves_is_no_mistake(tmp_path: Path) -> None:
    answer = in_a_shell("--json figures.json 2>talk | (exec <&-; sleep 0.1)", tmp_path)
    assert answer.returncode == 0
    assert read(tmp_path / "figures.json")["images_per_s"] > 0
    assert "Error" not in (tmp_path / "talk").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full on this system")
def test_a_full_disk_behind_standard_output_is_told_in_words(tmp_path: Path) -> None:
    answer = in_a_shell("> /dev/full", tmp_path)
    assert answer.returncode == 2
    assert "the figures cannot be printed: No space left on device." in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "Exception ignored" not in answer.stderr


def test_ctrl_c_ends_it_in_one_line_and_writes_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    with begun(*QUICK[:-1], "100000", "--json", figures) as bench:
        end = time.monotonic() + 600
        while "window 1 of" not in bench.talk.read_text():
            assert time.monotonic() < end, bench.talk.read_text()
            time.sleep(0.02)
        os.kill(bench.pid, signal.SIGINT)
        out, talk = bench.communicate(timeout=600)
    assert bench.returncode == 130
    assert talk.splitlines()[-1] == "Interrupted: nothing was written."
    assert "Traceback" not in talk
    assert out == ""
    assert not figures.exists()


def test_asking_for_help_does_not_import_torch() -> None:
    script = "import sys, viaduct.verbs.bench; print({'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """One measurement beside a peer, and what was said of it."""
    figures = tmp_path_factory.mktemp("bench") / "figures.json"
    answer = viaduct(*QUICK, "--precision", "fp32", "--peer", "plain,timm", "--way", "eager", "--json", figures)
    assert answer.returncode == 0, answer.stderr
    return read(figures), answer


def test_the_figures_come_with_all_that_is_needed_to_repeat_them(measured: Any) -> None:
    record, answer = measured
    assert record["images_per_s"] == pytest.approx(2000 / record["ms_per_step"])
    words = [*QUICK, "--precision", "fp32", "--peer", "plain,timm", "--way", "eager"]
    assert record["command"] == "viaduct " + " ".join(words)
    assert record["precision"] == "fp32"
    assert all(record[name] for name in ("machine", "versions", "date", "commit", "ceilings", "title"))
    assert "torch" in record["versions"]
    assert "images/s" in answer.stdout
    assert "window 2 of 2" in answer.stderr


def test_a_peer_is_compared_turn_by_turn(measured: Any) -> None:
    record, answer = measured
    (plain,) = record["peers"]
    assert plain["variant"] == "plain resnet20_quick, eager"
    ours, theirs = record["samples"]["seconds_per_step"].values()
    assert len(ours) == len(theirs) == 2
    assert plain["ours_is"] == pytest.approx(sum(b / a for a, b in zip(ours, theirs, strict=True)) / 2)
    assert "plain resnet20_quick, eager" in answer.stdout


def test_a_peer_without_such_a_network_is_named_and_nothing_is_wrong(measured: Any) -> None:
    record, answer = measured
    reason = "it has no network like resnet20_quick" if find_spec("timm") else "it is not installed"
    assert record["left_out"] == {"timm": reason}
    assert f"Left out: timm: {reason}." in answer.stdout


def test_the_parts_of_a_step_add_up_to_it(measured: Any) -> None:
    record, _ = measured
    time = record["time"]
    assert {"convolution", "normalisation", "optimizer"} <= set(time["ms"])
    parts = sum(time["ms"].values()) + time["host_gaps_ms"] + time["data_wait_ms"]
    assert parts == pytest.approx(record["ms_per_step"], rel=0.02)
    for share in (record["bandwidth_share"], record["matrix_share"]):
        assert share is None or 0 < share <= 1


def test_real_records_are_read_while_peers_have_noise(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        write_split(tmp_path / "records", split, [8])
    words = ("bench", "resnet18_imagenet", "--device", "cpu", "--batch", "2", "--size", "32", "--steps", "1")
    figures = tmp_path / "figures.json"
    answer = viaduct(*words, "--data", tmp_path / "records", "--peer", "plain", "--json", figures)
    assert answer.returncode == 0, answer.stderr
    record = read(figures)
    assert record["data"] == str(tmp_path / "records")
    assert record["time"]["data_wait_ms"] > 0
    assert record["peers"][0]["time"]["data_wait_ms"] == 0
    assert "only ours reads data" in answer.stdout
    assert "32x32, " in record["title"]
    assert record["title"].endswith(", reading records")


def test_without_a_profile_there_are_no_shares(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    answer = viaduct(*QUICK, "--no-profile", "--json", figures)
    assert answer.returncode == 0
    assert read(figures)["time"] == {"why_not": "no profile was asked for"}
    assert "where a step's time goes" not in answer.stdout


def test_a_window_is_a_whole_number_of_sinks_and_a_device_without_capture_says_why(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    answer = viaduct(*QUICK, "--sink", "3", "--no-profile", "--json", figures)
    assert answer.returncode == 0, answer.stderr
    record = read(figures)
    assert (record["sink"], record["steps"], record["warmup"]) == (3, 3, 3)
    assert any("cpu captures no graphs" in note for note in record["notes"])
    assert (record["sink_on_device"], record["sink_obstacle"]) == (False, "cpu captures no graphs")
    assert "cpu captures no graphs" in answer.stdout


def test_a_repetition_is_a_measurement_of_its_own(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    assert viaduct(*QUICK, "--repeat", "2", "--json", figures).returncode == 0
    record = read(figures)
    time = record["time"]
    parts = sum(time["ms"].values()) + time["host_gaps_ms"] + time["data_wait_ms"]
    assert parts == pytest.approx(record["ms_per_step"])
    assert record["repeats"] == len(record["runs"]) == 2
    assert len(record["samples"]["seconds_per_step"][record["variant"]]) == 4


def test_an_earlier_result_is_replaced_and_figures_can_go_into_the_results(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    figures.write_bytes(RECORD_PREFIX + b"}")
    assert viaduct(*QUICK, "--no-profile", "--json", figures).returncode == 0
    page = render(read_results(tmp_path))
    assert "shapes_taster: batch 2, 32x32" in page
    assert "images/s" in page


def test_what_was_run_stands_beside_what_was_asked_for(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = (
        "--mode",
        "eager",
        "--compile",
        "regional",
        "--kernels",
        "off",
        "--way",
        "eager",
        "--windows",
        "1",
        "--no-profile",
    )
    answer = viaduct(*QUICK, *words, "--json", figures)
    assert answer.returncode == 0, answer.stderr
    record = read(figures)
    assert (record["mode"], record["compile"], record["compiled"]) == ("eager", "regional", "off")
    assert (record["kernels"], record["own_kernels"]) == ("off", 0)
    assert record["machine"]["threads"] == 1
    assert "--compile regional has no effect in eager mode; --mode graph compiles." in record["notes"]
    assert "--way eager has no say without --peer" in answer.stderr
    assert "1 window of 1 step, 1 variant in turn" in answer.stderr
    assert record["spread"] is None
    assert record["rows"][0]["spread"] == ""


# torch's own, which it hides by a way that does not reach here.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize(
    ("how", "named"), [("regional", "graph, regional"), ("whole", "graph, whole"), ("off", "graph")]
)
def test_the_title_of_ours_says_what_is_compiled(
    how: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.compile  # graphs are found as ever and run as they are: the compiler takes a minute
    monkeypatch.setattr(torch, "compile", lambda work, **options: real(work, backend="eager", dynamic=False))
    monkeypatch.setattr("sys.argv", ["viaduct"])
    run_bench({**defaults(), "recipe": "shapes_taster", "mode": "graph", "compile": how, "json": tmp_path / "it.json"})
    record = read(tmp_path / "it.json")
    assert record["way"].endswith(named)
    assert record["compiled"] == how


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
    assert [one["variant"] for one in record["peers"]] == [] if fails else ["torchvision resnet18, eager"]
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

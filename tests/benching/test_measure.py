"""A benchmark of training steps: ours and a peer in turns, and the profile of a step."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from data.record_files import write_split
from forked_viaduct import viaduct

QUICK = ("bench", "shapes_taster", "--device", "cpu", "--batch", "2", "--steps", "1", "--windows", "2")


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    return record


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


def test_a_repetition_is_a_measurement_of_its_own(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    assert viaduct(*QUICK, "--repeat", "2", "--json", figures).returncode == 0
    record = read(figures)
    time = record["time"]
    parts = sum(time["ms"].values()) + time["host_gaps_ms"] + time["data_wait_ms"]
    assert parts == pytest.approx(record["ms_per_step"])
    assert record["repeats"] == len(record["runs"]) == 2
    assert len(record["samples"]["seconds_per_step"][record["variant"]]) == 4

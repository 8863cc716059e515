"""Differences between two runs, and facts that are unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runs.sample_runs import MACHINE, describe_origin, make_run
from viaduct.runs.differences import RunDifference, diff_runs
from viaduct.runs.listing import open_run


def diff(first: Path, second: Path) -> RunDifference:
    return diff_runs(open_run(first), open_run(second))


def text(found: RunDifference) -> str:
    return "\n".join(found.render_lines())


def with_session(**changes: Any) -> dict[str, Any]:
    origin = describe_origin()
    origin["sessions"][0] |= changes
    return origin


def test_two_identical_runs_are_reported_to_be_so(tmp_path: Path) -> None:
    for name in "ab":
        (make_run(tmp_path / name) / "model.safetensors").write_bytes(b"weights")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert not found.differs
    assert found.render_lines()[0] == "No difference was found in what was compared."
    assert "Same recipe, data (by every pixel; all labels), code, machine" in text(found)
    assert "Losses: 600 exactly equal, as recorded." in text(found)
    assert all(aspect.same is not None for aspect in found.aspects)


def test_nothing_is_called_equal_that_was_not_recorded(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a", provenance=None, finished=False), make_run(tmp_path / "b", finished=False))
    assert not found.differs
    assert "Same recipe, origin of the first weights (drawn).\n" in text(found)
    for missing in ("Data: fingerprint not recorded in A", "Machine: not recorded in A", "not recorded in A"):
        assert missing in text(found)


def test_one_field_that_differs_is_the_first_line(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a", lr=0.1), make_run(tmp_path / "b", lr=0.05)
    found = diff(first, second)
    assert found.differs
    assert found.render_lines()[0].split() == ["optimizer.lr", "0.1", "0.05"]


def test_what_matters_comes_before_bookkeeping(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"checkpoint.keep": 9, "seed": 4, "model": "resnet56", "log.format": "tf"}
    record = make_run(tmp_path / "b") / "recipe.json"
    content = json.loads(record.read_text())
    content["recipe"] |= {"seed": 4, "model": "resnet56"}
    content["recipe"]["checkpoint"]["keep"] = 9
    content["recipe"]["log"]["format"] = "tf"
    record.write_text(json.dumps(content))
    found = diff(make_run(tmp_path / "a"), tmp_path / "b")
    assert list(found.aspects[0].changes)[:2] == ["model", "seed"]
    assert set(found.aspects[0].changes) == set(changes)


def test_weights_that_differ_are_found_although_another_file_is_missing(tmp_path: Path) -> None:
    for name in "ab":
        (make_run(tmp_path / name) / "model.safetensors").write_bytes(name.encode())
    (tmp_path / "a" / "ema.safetensors").write_bytes(b"averaged")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.differs
    assert "The final weights differ." in text(found)


def test_a_best_result_that_differs_is_named_though_the_last_is_equal(tmp_path: Path) -> None:
    first, second = open_run(make_run(tmp_path / "a")), open_run(make_run(tmp_path / "b"))
    second.best_top1 = 0.95
    found = diff_runs(first, second)
    assert found.differs
    assert "Best top-1: 89.78 % and 95.00 %." in text(found)


def test_recipe_files_that_differ_are_not_called_the_same(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / name, file="/home/me/mine.py", files={"recipe.py": checksum}, model_file=None)
        for name, checksum in (("a", "11" * 32), ("b", "11" * 32), ("c", "22" * 32))
    ]
    early = make_run(tmp_path / "early", file="/home/me/mine.py")
    assert not diff(runs[0], runs[1]).differs
    assert "Same recipe, files of the recipe, data" in text(diff(runs[0], runs[1]))
    assert diff(runs[1], runs[2]).differs
    assert diff(runs[1], runs[2]).render_lines()[0].split() == ["recipe.py", "sha256", "1" * 12, "sha256", "2" * 12]
    assert "Files of the recipe: no checksum of recipe.py in B." in text(diff(runs[0], early))


def test_the_file_of_a_network_is_compared(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / name, model_file={"file": "/home/me/net.py", "sha256": checksum})
        for name, checksum in (("a", "11" * 32), ("b", "22" * 32))
    ]
    assert diff(*runs).differs
    assert "Files of the recipe differ." in text(diff(*runs))


def test_fingerprints_of_different_parts_of_the_data_are_not_compared(tmp_path: Path) -> None:
    other = with_session(data={"fingerprint": "0ther", "basis": "number of images; all labels"})
    found = diff(make_run(tmp_path / "a"), make_run(tmp_path / "b", provenance=other))
    assert not found.differs
    assert (
        "Data: not compared: fingerprint of every pixel; all labels in A, of number of images; all labels in B."
        in text(found)
    )


def test_a_fact_of_the_machine_that_only_one_run_recorded_is_not_compared(tmp_path: Path) -> None:
    machine = {name: value for name, value in MACHINE.items() if name != "cpus"}
    found = diff(make_run(tmp_path / "a"), make_run(tmp_path / "b", provenance=with_session(machine=machine)))
    assert not found.differs
    assert "Machine: machine.cpus not recorded in B." in text(found)
    other = with_session(machine=MACHINE | {"versions": {}})
    assert diff(tmp_path / "a", make_run(tmp_path / "c", provenance=other)).differs


def test_a_result_that_only_one_run_has_is_no_difference(tmp_path: Path) -> None:
    first, second = open_run(make_run(tmp_path / "a")), open_run(make_run(tmp_path / "b"))
    second.top1 = second.best_top1 = None
    assert not diff_runs(first, second).differs
    assert "Results: no evaluation in B." in text(diff_runs(first, second))


def test_a_resumed_run_is_said_to_be_compared_by_its_last_session(tmp_path: Path) -> None:
    resumed = describe_origin()
    resumed["sessions"] *= 2
    found = diff(make_run(tmp_path / "a"), make_run(tmp_path / "b", provenance=resumed))
    assert "B has 2 recorded sessions: data, code and machine are those of the last session." in text(found)


def test_data_code_and_machine_that_differ_are_named(tmp_path: Path) -> None:
    other = with_session(
        data={"fingerprint": "0ther", "basis": "every pixel; all labels"},
        source="0",
        commit="ffff",
        machine=MACHINE | {"description": "NVIDIA H200"},
    )
    found = diff(make_run(tmp_path / "a"), make_run(tmp_path / "b", provenance=other))
    changed = {name for aspect in found.aspects for name in aspect.changes}
    assert {"data.fingerprint", "code", "machine.description"} <= changed
    assert found.differs


def test_weights_of_which_one_byte_differs_are_a_difference(tmp_path: Path) -> None:
    for name, weights in (("a", b"abc"), ("b", b"abd")):
        (make_run(tmp_path / name) / "model.safetensors").write_bytes(weights)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.differs
    assert "The final weights differ." in text(found)


def test_weights_that_are_missing_are_reported_not_to_be_compared(tmp_path: Path) -> None:
    (make_run(tmp_path / "a") / "model.safetensors").write_bytes(b"abc")
    (make_run(tmp_path / "b") / "model.safetensors").unlink()
    found = diff(tmp_path / "a", tmp_path / "b")
    assert "Final weights: not compared: no model.safetensors in B." in text(found)


def test_the_text_of_what_is_the_same_does_not_say_that_it_differs(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a"), make_run(tmp_path / "b"))
    assert not [aspect for aspect in found.aspects if aspect.same and "differ" in aspect.text]
    one_field = diff(tmp_path / "a", make_run(tmp_path / "c", lr=0.3))
    assert "1 field of the recipe differs." in text(one_field)


def test_first_weights_are_compared_by_their_checksum(tmp_path: Path) -> None:
    init = {"source": "w", "file": "w", "sha256": "11", "bytes": 1, "run": None, "run_id": None, "step": None}
    origins = [describe_origin(init=init | {"sha256": checksum}) for checksum in ("11", "22")]
    runs = [
        make_run(tmp_path / str(index), provenance=origin, **{"init.source": "w"})
        for index, origin in enumerate([origins[0], *origins])
    ]
    assert not diff(runs[0], runs[1]).differs
    assert diff(runs[1], runs[2]).differs


def test_first_weights_from_a_file_that_was_not_recorded_are_not_called_equal(tmp_path: Path) -> None:
    for name in "ab":  # begun by an early version of viaduct, and resumed by one that records sessions
        make_run(tmp_path / name, provenance=describe_origin(), **{"init.source": "weights.npz"})
    drawn = make_run(tmp_path / "drawn")
    assert "First weights: not recorded in A and B." in text(diff(tmp_path / "a", tmp_path / "b"))
    assert "First weights: not recorded in A." in text(diff(tmp_path / "a", drawn))

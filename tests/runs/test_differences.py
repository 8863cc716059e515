"""What differs between two runs, and what is not known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from runs.made_up_runs import MACHINE, describe_origin, make_run
from viaduct.runs.differences import RunDifference, diff_runs
from viaduct.runs.listing import open_run
from viaduct.runs.losses import LossDifference


def diff(first: Path, second: Path) -> RunDifference:
    return diff_runs(open_run(first), open_run(second))


def text(found: RunDifference) -> str:
    return "\n".join(found.lines())


def with_session(**changes: Any) -> dict[str, Any]:
    origin = describe_origin()
    origin["sessions"][0] |= changes
    return origin


def test_two_identical_runs_are_said_to_be_so(tmp_path: Path) -> None:
    for name in "ab":
        (make_run(tmp_path / name) / "model.safetensors").write_bytes(b"weights")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert not found.differs
    assert found.lines()[0] == "No difference was found in what both runs have recorded."
    assert "Same recipe, data, code, machine" in text(found)
    assert "Losses: 600 equal in every bit." in text(found)
    assert found.unrecorded_aspects == []


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
    assert found.lines()[0].split() == ["optimizer.lr", "0.1", "0.05"]


def test_what_matters_comes_before_bookkeeping(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"checkpoint.keep": 9, "seed": 4, "model": "resnet56", "log.format": "tf"}
    record = make_run(tmp_path / "b") / "recipe.json"
    content = json.loads(record.read_text())
    content["recipe"] |= {"seed": 4, "model": "resnet56"}
    content["recipe"]["checkpoint"]["keep"] = 9
    content["recipe"]["log"]["format"] = "tf"
    record.write_text(json.dumps(content))
    found = diff(make_run(tmp_path / "a"), tmp_path / "b")
    assert list(found.recipe.changes)[:2] == ["model", "seed"]
    assert set(found.recipe.changes) == set(changes)


def test_the_first_loss_that_differs_is_found_and_when_curves_stay_apart(tmp_path: Path) -> None:
    first = make_run(tmp_path / "a")
    second = tmp_path / "b"
    shutil.copytree(first, second)
    lines = [json.loads(line) for line in (second / "metrics.jsonl").read_text().splitlines()]
    for record in lines:
        if record["kind"] == "log" and record["step"] > 300:
            record["losses"] = [loss + 1.0 for loss in record["losses"]]
    (second / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    losses = diff(first, second).losses
    assert isinstance(losses, LossDifference)
    assert losses.first == 301
    assert losses.beyond_noise is not None
    assert abs(losses.beyond_noise - 301) < 10
    assert losses.area is not None
    assert abs(losses.area - 299.5) < 0.1
    assert losses.last_gap is not None
    assert abs(losses.last_gap - 1.0) < 1e-9


def test_a_difference_within_noise_is_not_called_more(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a", seed=1), make_run(tmp_path / "b", seed=2))
    assert isinstance(found.losses, LossDifference)
    assert (found.losses.first, found.losses.beyond_noise) == (1, None)
    assert "within each other's noise" in text(found)


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


def test_data_code_and_machine_that_differ_are_named(tmp_path: Path) -> None:
    other = with_session(
        data={"fingerprint": "0ther", "basis": "every pixel"},
        source="0",
        commit="ffff",
        machine=MACHINE | {"description": "NVIDIA H200"},
    )
    found = diff(make_run(tmp_path / "a"), make_run(tmp_path / "b", provenance=other))
    changed = {name for aspect in found.aspects for name in aspect.changes}
    assert {"data.fingerprint", "code", "machine.description"} <= changed
    assert found.differs


def test_a_final_difference_is_set_against_seed_noise(tmp_path: Path) -> None:
    for seed, top1 in enumerate((0.900, 0.902, 0.898)):
        make_run(tmp_path / f"a{seed}", lr=0.1, seed=seed, top1=top1)
    make_run(tmp_path / "b", lr=0.3, seed=0, top1=0.95)
    found = diff(tmp_path / "a0", tmp_path / "b")
    assert found.noise is not None
    assert found.noise.counts == (3, 1)
    assert "from 3 seeds of A" in text(found)
    assert "larger than 2 standard deviations" in text(found)


def test_without_other_seeds_no_noise_is_claimed(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a", top1=0.9), make_run(tmp_path / "b", lr=0.3, top1=0.8))
    assert found.noise is None
    assert "seed noise is not known" in text(found)


def test_two_seeds_do_not_measure_the_noise_of_their_own_difference(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a", seed=1, top1=0.9), make_run(tmp_path / "b", seed=2, top1=0.8))
    assert found.noise is None
    assert "seed noise is not known" in text(found)
    make_run(tmp_path / "c", seed=3, top1=0.85)
    again = diff(tmp_path / "a", tmp_path / "b")
    assert again.noise is not None
    assert "from 3 seeds of this recipe" in text(again)


def lose_losses(run: Path, after: int) -> Path:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in lines:
        if record["kind"] == "log" and record["step"] > after:
            record |= {"loss": None, "losses": [None] * len(record["losses"])}
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    return run


def test_no_distance_is_claimed_of_a_loss_that_is_nan(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a"), lose_losses(make_run(tmp_path / "b"), 500))
    assert isinstance(found.losses, LossDifference)
    assert (found.losses.area, found.losses.mean_gap, found.losses.last_gap) == (None, None, None)
    assert "Area" not in text(found)
    assert "At the end" not in text(found)
    assert "Not comparable where the loss is NaN or infinite: 100 in B of 600 steps, first at step 501." in text(found)


def test_losses_that_are_nan_in_both_are_not_counted_as_equal(tmp_path: Path) -> None:
    found = diff(*(lose_losses(make_run(tmp_path / name), 500) for name in "ab"))
    assert "Losses: 500 equal in every bit." in text(found)
    assert "100 in A and 100 in B of 600 steps" in text(found)


def test_weights_of_which_one_byte_differs_are_a_difference(tmp_path: Path) -> None:
    for name, weights in (("a", b"abc"), ("b", b"abd")):
        (make_run(tmp_path / name) / "model.safetensors").write_bytes(weights)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.differs
    assert "The final weights differ." in text(found)


def test_weights_that_are_missing_are_said_not_to_be_compared(tmp_path: Path) -> None:
    (make_run(tmp_path / "a") / "model.safetensors").write_bytes(b"abc")
    (make_run(tmp_path / "b") / "model.safetensors").unlink()
    found = diff(tmp_path / "a", tmp_path / "b")
    assert "Final weights: not compared: no model.safetensors in B." in text(found)


def test_the_text_of_what_is_the_same_does_not_say_that_it_differs(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a"), make_run(tmp_path / "b"))
    assert not [aspect for aspect in found.aspects if aspect.same and "differ" in aspect.text]
    one_field = diff(tmp_path / "a", make_run(tmp_path / "c", lr=0.3))
    assert "1 field of the recipe differs." in text(one_field)


def test_a_run_that_logged_nothing_is_said_to_have_logged_no_loss(tmp_path: Path) -> None:
    (make_run(tmp_path / "b", done=0, finished=False) / "metrics.jsonl").unlink()
    found = diff(make_run(tmp_path / "a"), tmp_path / "b")
    assert "Losses: not compared: B logged no loss." in text(found)


def test_runs_without_a_common_step_are_not_compared(tmp_path: Path) -> None:
    found = diff(make_run(tmp_path / "a", done=0, finished=False), make_run(tmp_path / "b"))
    assert isinstance(found.losses, str)
    assert "Losses: not compared" in text(found)


def test_first_weights_are_compared_by_their_checksum(tmp_path: Path) -> None:
    init = {"source": "w", "file": "w", "sha256": "11", "bytes": 1, "run": None, "run_id": None, "step": None}
    origins = [describe_origin(init=init | {"sha256": checksum}) for checksum in ("11", "22")]
    runs = [
        make_run(tmp_path / str(place), provenance=origin, **{"init.source": "w"})
        for place, origin in enumerate([origins[0], *origins])
    ]
    assert not diff(runs[0], runs[1]).differs
    assert diff(runs[1], runs[2]).differs

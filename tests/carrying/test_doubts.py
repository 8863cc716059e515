"""Doubts about ranks that took no step, that train together on one side only, or that share a model_dir."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from carrying.sample_observations import make_observation
from viaduct.carrying.agreement import judge, pair_observations
from viaduct.carrying.coverage import Edit
from viaduct.carrying.doubts import (
    describe_shared_model_dir,
    find_joined_ranks,
    find_uncompared,
    find_unexecuted_edits,
    find_unseen_ranks,
)
from viaduct.carrying.observations import Observations, Rank
from viaduct.rehearsal.inspection import describe_ranks


def carrying(left: Observations, right: Observations, ranks: int = 2) -> Any:
    base, migrated = SimpleNamespace(observations=left), SimpleNamespace(observations=right)
    return SimpleNamespace(golden_run=base, migrated=migrated, request=SimpleNamespace(ranks=ranks))


def test_ranks_that_train_together_on_one_side_only_hide_differences() -> None:
    alone, joined = (make_observation(facts=[describe_ranks(together)]) for together in (False, True))
    (doubt,) = find_joined_ranks(carrying(alone, joined))
    assert doubt.hides_differences
    assert not list(find_joined_ranks(carrying(alone, alone))) + list(find_joined_ranks(carrying(joined, joined)))


def test_a_rank_that_neither_side_saw_is_named_and_one_of_a_single_side_differs() -> None:
    single, both = make_observation(), Observations([*make_observation().ranks, Rank(1, [[1.0]])])
    (doubt,) = find_unseen_ranks(carrying(single, single))
    assert doubt.items == ["rank 1"]
    assert not list(find_unseen_ranks(carrying(single, both)))
    assert [pair.why for pair in pair_observations(single, both) if pair.bad] == [
        "only the migrated script has a rank 1"
    ]


def test_equal_losses_that_are_nan_or_infinite_prove_nothing() -> None:
    def find_items(*losses: float) -> list[str]:
        observed = make_observation(losses=[[loss] for loss in losses])
        result: Any = SimpleNamespace(agreement=judge(pair_observations(observed, observed)))
        return [item for doubt in find_uncompared(result) for item in doubt.items]

    assert find_items(2.0, 1.0, 0.5) == []
    assert find_items(2.0, math.inf, math.nan) == ["step 1", "step 2"]


def test_a_model_dir_that_the_ranks_of_an_estimator_share_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("estimator = tf.estimator.Estimator(model_fn)\n")
    run: Any = SimpleNamespace(side="original", summary=SimpleNamespace(written_files=["model/checkpoint", "a.txt"]))
    sides = SimpleNamespace(original_script=script, migrated_script=script)
    two: Any = SimpleNamespace(request=SimpleNamespace(ranks=2), framework="tf1", sides=sides)
    (text,) = describe_shared_model_dir(two, run)
    assert text.startswith("the ranks share the model_dir model:")
    result: Any = SimpleNamespace(request=SimpleNamespace(ranks=1), framework="tf1", sides=sides)
    assert not list(describe_shared_model_dir(result, run))
    run.summary.written_files = ["a.txt"]
    assert not list(describe_shared_model_dir(two, run))


def test_a_file_that_an_earlier_carry_executed_is_not_called_never_executed() -> None:
    missed = Edit("migrated", "model.py", 3, "x", 0)
    ran_earlier = Edit("migrated", "model.py", 9, "y", 0, earlier="first")
    migrated = SimpleNamespace(executed_files=SimpleNamespace(positions={"train.py"}))
    result: Any = SimpleNamespace(
        migrated=migrated, edits=[missed, ran_earlier], sides=SimpleNamespace(diffs={"model.py": []})
    )
    (doubt,) = find_unexecuted_edits(result)
    assert doubt.text == "1 edit was never executed"
    result.edits = [missed]
    (doubt,) = find_unexecuted_edits(result)
    assert (doubt.text, doubt.items) == ("1 file that the migration rewrote was never executed", ["model.py"])

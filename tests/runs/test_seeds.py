"""Seed noise: measured from finished seeds only, and never from two."""

from __future__ import annotations

from pathlib import Path

from runs.sample_runs import make_run
from viaduct.runs.differences import RunDifference, diff_runs
from viaduct.runs.listing import open_run


def diff(first: Path, second: Path) -> RunDifference:
    return diff_runs(open_run(first), open_run(second))


def text(found: RunDifference) -> str:
    return "\n".join(found.render_lines())


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

"""Profiles of several ranks as one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from viaduct.errors import BadData
from viaduct.profiling.folder import merge_ranks, read_profile, write_profile

from .complete_profile import make_profile


def test_two_profiles_of_the_same_rank_are_not_merged(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_profile(make_profile(), tmp_path / name)
    with pytest.raises(BadData, match=r"rank 0 is in both .*a and .*b"):
        merge_ranks([tmp_path / "a", tmp_path / "b"])


def test_ranks_without_a_common_clock_are_merged_with_a_note(tmp_path: Path) -> None:
    for rank in range(2):
        profile = make_profile(rank)
        facts = dataclasses.replace(profile.facts, zero_unix_us=None)
        write_profile(dataclasses.replace(profile, facts=facts), tmp_path / f"rank_{rank}")
    merged = merge_ranks([tmp_path / "rank_0", tmp_path / "rank_1"])
    assert any("no common origin" in note for note in merged.facts.notes)
    assert merged.regular_steps_of(1)[0].end_us == merged.regular_steps_of(0)[0].end_us


def test_ranks_are_merged_on_one_clock(tmp_path: Path) -> None:
    for rank in range(2):
        write_profile(make_profile(rank), tmp_path / f"rank_{rank}")
    merged = merge_ranks([tmp_path / "rank_0", tmp_path / "rank_1"])
    assert merged.facts.ranks == 2
    assert merged.ranks == [0, 1]
    first, second = merged.regular_steps_of(0)[0], merged.regular_steps_of(1)[0]
    assert second.end_us - first.end_us == pytest.approx(1000)
    assert second.collectives[0].start_us - first.collectives[0].start_us == pytest.approx(1000)
    assert second.iteration_us == pytest.approx(first.iteration_us)
    assert merged.tables["step_trace_time"]["columns"] == ["Rank", "Step", "Computing"]
    assert [row[0] for row in merged.tables["step_trace_time"]["rows"]] == ["0", "1"]
    assert merged.facts.notes[0] == "no GPU"
    assert "sampled" in merged.facts.notes[-1]
    write_profile(merged, tmp_path)
    assert read_profile(tmp_path) == merged


def test_phases_are_measured_only_if_every_rank_has_them(tmp_path: Path) -> None:
    for rank in range(2):
        profile = make_profile(rank)
        facts = dataclasses.replace(profile.facts, phases_measured=rank == 0)
        write_profile(dataclasses.replace(profile, facts=facts), tmp_path / f"rank_{rank}")
    assert not merge_ranks([tmp_path / "rank_0", tmp_path / "rank_1"]).facts.phases_measured


def test_ranks_that_differ_in_their_batch_are_named(tmp_path: Path) -> None:
    for rank in range(2):
        profile = make_profile(rank)
        facts = dataclasses.replace(profile.facts, batch=32 + rank)
        write_profile(dataclasses.replace(profile, facts=facts), tmp_path / f"rank_{rank}")
    merged = merge_ranks([tmp_path / "rank_0", tmp_path / "rank_1"])
    assert merged.facts.batch is None
    assert "The ranks differ in batch: 32, 33." in merged.facts.notes

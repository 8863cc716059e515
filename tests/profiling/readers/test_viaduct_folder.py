"""Profiles that `viaduct profile` wrote."""

from __future__ import annotations

from pathlib import Path

from viaduct.profiling.folder import write_profile
from viaduct.profiling.readers import read_any

from ..complete_profile import make_profile


def test_our_own_profile_is_read_from_its_folder_and_its_file(tmp_path: Path) -> None:
    write_profile(make_profile(), tmp_path)
    assert read_any(tmp_path) == make_profile()
    assert read_any(tmp_path / "profile.json") == make_profile()


def test_the_ranks_of_a_run_that_was_not_merged_are_merged(tmp_path: Path) -> None:
    for rank in range(2):
        write_profile(make_profile(rank), tmp_path / f"rank_{rank}")
    assert read_any(tmp_path).ranks == [0, 1]

"""Profiles of viaduct: a folder with profile.json, or with a folder rank_N for each rank."""

from __future__ import annotations

from pathlib import Path

from viaduct.profiling.folder import PROFILE_FILE, is_profile_folder, merge_ranks, read_profile
from viaduct.profiling.outputs import RANK_PREFIX
from viaduct.profiling.record import Profile

LAYOUT = f"a profile of viaduct ({PROFILE_FILE}, or rank_0/{PROFILE_FILE} …)"
TRIED_AFTER: tuple[str, ...] = ()


def recognise(path: Path) -> bool:
    """Return True for a profile folder, its profile.json, or a folder of ranks."""
    return is_profile_folder(path) or (path.name == PROFILE_FILE and path.is_file()) or bool(find_ranks(path))


def find_ranks(path: Path) -> list[Path]:
    """Return the profile folders rank_0, rank_1, … in a folder, in the order of their ranks."""
    numbers = {folder: folder.name.removeprefix(RANK_PREFIX) for folder in path.glob(f"{RANK_PREFIX}*")}
    folders = [folder for folder, number in numbers.items() if number.isdecimal() and is_profile_folder(folder)]
    return sorted(folders, key=lambda folder: int(numbers[folder]))


def read(path: Path) -> Profile:
    """Return the profile, or the merged profiles of the ranks if there is no profile.json."""
    folder = path.parent if path.is_file() else path
    return read_profile(folder) if is_profile_folder(folder) else merge_ranks(find_ranks(folder))

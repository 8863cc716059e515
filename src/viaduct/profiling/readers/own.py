"""Profiles that viaduct wrote: a folder with profile.json, or with a folder rank_N for each rank."""

from __future__ import annotations

from pathlib import Path

from viaduct.profiling.folder import PROFILE, is_profile_folder, merge_ranks, read_profile
from viaduct.profiling.record import Profile

LAYOUT = f"a profile of viaduct ({PROFILE}, or rank_0/{PROFILE} …)"
AFTER: tuple[str, ...] = ()


def recognise(path: Path) -> bool:
    """Return True for a profile folder, its profile.json, or a folder of ranks."""
    return is_profile_folder(path) or (path.name == PROFILE and path.is_file()) or bool(find_ranks(path))


def find_ranks(path: Path) -> list[Path]:
    folders = [folder for folder in path.glob("rank_*") if folder.name[5:].isdecimal() and is_profile_folder(folder)]
    return sorted(folders, key=lambda folder: int(folder.name[5:]))


def read(path: Path) -> Profile:
    """Return the profile; that of several ranks is merged where no merged one lies there."""
    folder = path.parent if path.is_file() else path
    return read_profile(folder) if is_profile_folder(folder) else merge_ranks(find_ranks(folder))

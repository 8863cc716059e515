"""Output of `viaduct profile`: a profile folder for each rank, the merged profile, advice and the page.

prepare_folder(Path("prof"), force=False)              # before anything is run
profile, events = write_ranks([(0, profile, events)], Path("prof"))
profile, files = complete_folder(profile, Path("prof"), events, notify=print)
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from viaduct.errors import BadRun, ViaductError
from viaduct.profiling.folder import PROFILE_FILE, TABLE_FILES, merge_events, merge_ranks, write_profile
from viaduct.profiling.record import Ceilings, Profile
from viaduct.profiling.trace import PACKED_TRACE, PLAIN_TRACE

REPORT_FILE = "report.html"
PROFILE_FILES = (PROFILE_FILE, *TABLE_FILES, PLAIN_TRACE, PACKED_TRACE, REPORT_FILE)
RANK_PREFIX = "rank_"  # of the names of ranks' folders

RankOutput = tuple[int, Profile, Sequence[dict[str, Any]]]  # rank, its profile, its recorded events


def prepare_folder(out: Path, force: bool) -> None:
    """Create the folder and test that it is writable; raise OSError if it is not.

    Raise BadRun for a file and, without `force`, for a folder that is not empty.
    """
    if out.exists() and not out.is_dir():
        raise BadRun(f"--out {out} is a file, not a folder.", "Choose another folder.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise BadRun(f"--out {out} is not empty.", "Choose another folder, or replace the profile in it with --force.")
    out.mkdir(parents=True, exist_ok=True)
    probe = out / f".{PROFILE_FILE}.probe"
    probe.touch()
    probe.unlink()


def check_page(out: Path, force: bool) -> None:
    """Raise BadRun if the page's path is a folder, a special file or, without `force`, any existing file."""
    if out.is_dir():
        raise BadRun(f"--out {out} is a folder; the page needs a file.", f"Name one: {out / 'difference.html'}")
    if os.path.lexists(out) and not stat.S_ISREG(out.lstat().st_mode):
        raise BadRun(f"--out {out} is not a regular file and is not replaced.", "Choose another file.")
    if out.exists() and not force:
        raise BadRun(f"--out {out} exists.", "Choose another file, or replace it with --force.")


def remove_profile(out: Path) -> None:
    """Remove the files of an earlier profile; other files in the folder stay."""
    for name in PROFILE_FILES:
        (out / name).unlink(missing_ok=True)
    for folder in out.glob(f"{RANK_PREFIX}*"):
        if folder.name.removeprefix(RANK_PREFIX).isdigit() and folder.is_dir():
            remove_profile(folder)
            if not any(folder.iterdir()):
                shutil.rmtree(folder)


def write_ranks(ranks: Sequence[RankOutput], out: Path) -> tuple[Profile, list[dict[str, Any]]]:
    """Return the merged profile and events of all ranks; if there are several, also write a folder for each."""
    if len(ranks) == 1:
        _, profile, events = ranks[0]
        return profile, list(events)
    folders = []
    for rank, profile, events in ranks:
        folders.append(out / f"{RANK_PREFIX}{rank}")
        write_profile(profile, folders[-1], events)
    return merge_ranks(folders), merge_events(folders)


def complete_folder(
    profile: Profile, out: Path, events: Sequence[dict[str, Any]], notify: Callable[[str], None]
) -> tuple[Profile, list[Path]]:
    """Add the device's ceilings (peak rates) and advice, and write all files of the folder.

    Return the complete profile, and the paths of the files and of the ranks' folders.
    """
    from viaduct.profiling.report import write_report

    write_profile(profile, out, events)  # kept even if ceilings or advice fail
    if profile.ceilings is None:
        profile = replace(profile, ceilings=find_ceilings(profile, notify))
    profile = find_advice(profile)
    files = write_profile(profile, out, events)
    write_report(profile, out / REPORT_FILE)
    ranks = sorted(path for path in out.glob(f"{RANK_PREFIX}*/") if (path / PROFILE_FILE).exists())
    return profile, [*files, out / REPORT_FILE, *ranks]


def find_ceilings(profile: Profile, notify: Callable[[str], None]) -> Ceilings | None:
    """Return the ceilings of the device for the dtypes in the profile; None if they cannot be measured."""
    dtypes = sorted({kernel.dtype for kernel in profile.kernels if kernel.dtype})
    if not dtypes:
        return None
    from viaduct.profiling.roofline import load_ceilings

    try:
        return load_ceilings(profile.facts.device, dtypes)
    except (ViaductError, OSError, RuntimeError) as error:
        notify(f"the roofline is left out: {error}")
        return None


def find_advice(profile: Profile) -> Profile:
    """Return the profile with advice; without operators no rule measures anything, so torch is not imported."""
    from viaduct.profiling.advice import add_advice

    if not profile.operators:
        return add_advice(profile)
    from viaduct.profiling.microbenchmarks import DeviceMicrobenchmarks

    cores = profile.facts.cores
    threads = max(1, cores // profile.facts.ranks) if cores and profile.facts.ranks > 1 else None
    return add_advice(profile, DeviceMicrobenchmarks(profile.facts.device, threads))

"""A request to train: a recipe, a run's directory, and options that are not part of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from viaduct.comparison.dump_options import DumpOptions
from viaduct.recipes import LoadedRecipe
from viaduct.training.profile_callback import ProfileRequest
from viaduct.training.rundir import RunDir
from viaduct.tuning.location import Location

# auto: resume a run that the directory holds; never: refuse a directory with a run; must: refuse one without.
Resume = Literal["auto", "never", "must"]


@dataclass(frozen=True)
class TrainingRequest:
    """A request to train: the recipe, the run's directory, and options that are not part of a recipe."""

    loaded: LoadedRecipe
    run: RunDir
    data: Path | None  # value of --data
    device: str
    resume: Resume
    command: str  # command line, for recipe.json and the report
    dump: DumpOptions | None = None
    watch: int | None = None  # port of the live page; 0: any free port; None: no page
    profile: ProfileRequest | None = None
    bank: Location | None = None  # of the tuning bank (a folder of the fastest measured variants); None: no bank

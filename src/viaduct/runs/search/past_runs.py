"""Past runs as observations of a search: finished runs of the same recipe, on images with the same labels.

An observation is a pair of parameters and result, from which the sampler learns. A run is taken if its recipe equals
that of the trials in all fields except those that the search changes and those in EQUIVALENT, if its values are in the
space, and if number and labels of the images are equal. Then its accuracy is taken for that of a trial with its values;
pixels, code and machine are not compared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.errors import BadData, ViaductError
from viaduct.recipes import Recipe
from viaduct.recipes._fields import compare_records, from_record, to_record
from viaduct.run_files import is_summary_of, read_recipe_record, read_summary
from viaduct.runs.finding import search_folders
from viaduct.runs.search.results import PAST_RUN
from viaduct.runs.search.space import Space, Value
from viaduct.runs.search.trial_process import is_number

if TYPE_CHECKING:
    from optuna import Study

EQUIVALENT = (
    *("evaluation", "checkpoint", "log", "callbacks", "metrics", "expects", "sink", "mode", "compile", "compile_parts"),
    *("kernels", "deterministic", "seed", "data.workers", "data.prefetch", "data.eval_batch"),
    *("parallel.bucket_mb", "parallel.find_unused", "parallel.hang_seconds"),
)
"""Fields that should not change the accuracy by more than another seed does."""


@dataclass(frozen=True)
class Criteria:
    """Properties that a past run must share with the trials."""

    name: str  # of the recipe
    recipe: Recipe  # with the settings of all trials, such as their length
    images: dict[str, Any]  # number of the images and checksum of their labels, by split, as in recipe.json
    metric: str


@dataclass(frozen=True)
class PastRun:
    """A finished run that counts as an observation."""

    path: Path
    values: dict[str, Value]  # of the fields that the search changes, by path
    value: float  # of the metric
    images: int | None  # number of validation images
    seed: int  # of the training


@dataclass
class PastRuns:
    """Past runs that are observations, and the reasons why other runs are not."""

    accepted: list[PastRun] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)  # number of runs by reason

    def describe(self, folder: Path) -> list[str]:
        """Return a line with the number of observations, and a line for each reason of refusal."""
        total = len(self.accepted) + self.refused.total()
        lines = [f"{len(self.accepted)} of {total} past runs in {folder} are taken as observations."]
        return lines + [f"  {count} not taken: {reason}" for reason, count in self.refused.most_common()]


class Unsuitable(Exception):
    """Raised for a past run that cannot be an observation of this search; the message is the reason."""


def gather_past_runs(folder: Path, criteria: Criteria, space: Space, study: Path | None = None) -> PastRuns:
    """Return the past runs below a folder; those in the folder `study`, which are trials, are skipped."""
    if not folder.is_dir():
        raise BadData(f"--from {folder}: there is no such folder.", "Give a folder with runs, such as runs/.")
    past_runs = PastRuns()
    for run in map(Path, sorted(search_folders([folder]).runs)):
        if study is not None and study.resolve() in (run.resolve(), *run.resolve().parents):
            continue
        try:
            past_runs.accepted.append(read_past_run(run, criteria, space))
        except Unsuitable as reason:
            past_runs.refused[str(reason)] += 1
        except (ViaductError, OSError):
            past_runs.refused["damaged, or not readable"] += 1
    return past_runs


def read_past_run(run: Path, criteria: Criteria, space: Space) -> PastRun:
    """Return a run as an observation; raise Unsuitable with the reason if it is not."""
    record = read_recipe_record(run)
    if record["name"] != criteria.name:
        raise Unsuitable("another recipe")
    recipe = from_record(record["recipe"], criteria.recipe)
    ignored = (*EQUIVALENT, *space.paths)
    differences = compare_records(to_record(criteria.recipe), to_record(recipe))
    changed = [path for path in differences if not is_covered(path, ignored)]
    if changed:
        raise Unsuitable(f"{', '.join(sorted(changed)[:3])}{' and more' if len(changed) > 3 else ''} differ")
    if record.get("images") != criteria.images:
        raise Unsuitable("other data")
    values = space.find_values(recipe)
    if isinstance(values, str):  # the path of a field
        raise Unsuitable(f"{values} is outside the space")
    summary = read_summary(run)
    if summary is None and (run / "summary.json").exists():
        raise Unsuitable("summary.json cannot be read")
    final = summary.get("final") if summary is not None and is_summary_of(summary, record["recipe"]) else None
    if not isinstance(final, dict):
        raise Unsuitable("not finished")
    value, images = final.get(criteria.metric), final.get("count")
    if not is_number(value):
        raise Unsuitable(f"no {criteria.metric}")
    return PastRun(run, values, float(value), images if isinstance(images, int) else None, recipe.seed)


def is_covered(path: str, fields: tuple[str, ...]) -> bool:
    """Return True for one of these fields, or a field inside one of them: `log.every_steps` is in `log`."""
    return any(path == name or path.startswith(f"{name}.") for name in fields)


def add_past_runs(study: Study, past_runs: list[PastRun], space: Space) -> int:
    """Add past runs to a study, except those that it has already; return the number of new ones."""
    import optuna

    known = {trial.user_attrs.get(PAST_RUN) for trial in study.get_trials(deepcopy=False)}
    added = [run for run in past_runs if str(run.path.resolve()) not in known]
    for run in added:
        study.add_trial(
            optuna.trial.create_trial(
                params=run.values,
                distributions={dimension.path: dimension.make_distribution() for dimension in space.dimensions},
                value=run.value,
                user_attrs={PAST_RUN: str(run.path.resolve()), "images": run.images, "seed": run.seed},
            )
        )
    return len(added)

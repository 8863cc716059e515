"""What is written of a measurement: the figures, the windows they come from, and everything needed to repeat it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from viaduct import __version__
from viaduct.benching.measure import Lengths, Measured, Outcome
from viaduct.benching.ours import Setting
from viaduct.benching.starts import Started, told
from viaduct.data.places import check_place, write_result
from viaduct.devices.timing import Sample, ratio
from viaduct.errors import BadValue
from viaduct.recipes import AdamW, Lars, Recipe, RmsProp, Sgd, Thor
from viaduct.training.summary import commit, machine

BEGINS = b'{\n "kind": "benchmark",\n "verb": "bench"'
COLUMNS = ["variant", "images/s", "ms/step", "spread", "ours is", "memory", "first step", "bandwidth", "matrix peak"]


def make_record(
    name: str,
    setting: Setting,
    lengths: Lengths,
    outcomes: list[Outcome],
    command: str,
    started: Started | None = None,
) -> dict[str, Any]:
    recipe, last = setting.recipe, outcomes[-1]
    best = {
        "bandwidth_bytes_per_s": max(one.ceilings.bandwidth for one in outcomes),
        "matrix_flop_per_s": max(one.ceilings.matrix for one in outcomes),
    }
    titles = [one.title for one in last.measured if all(one.title in titles_of(other) for other in outcomes)]
    variants = [variant_record([pick(other, title) for other in outcomes], outcomes, setting, best) for title in titles]
    known = machine(setting.device)
    return {
        "kind": "benchmark",
        "verb": "bench",
        "title": title_of(name, setting, last.compute),
        "recipe": name,
        "model": recipe.model if isinstance(recipe.model, str) else "own network",
        "batch": recipe.data.global_batch,
        "size": recipe.data.size,
        "precision": last.compute,
        **last.facts,
        "data": "synthetic" if setting.synthetic else str(setting.data),
        **asdict(lengths),
        "repeats": len(outcomes),
        **variants[0],
        "peers": variants[1:],
        "left_out": {key: why for one in outcomes for key, why in one.absent.items()},
        "ceilings": best,
        **({"starts": started[0], "starts_left_out": started[1], "starts_told": told(started)} if started else {}),
        "notes": [*last.notes, *about_ratios(recipe, variants[1:]), *about_ceilings(variants, last.compute)],
        "machine": known,
        "versions": {"viaduct": __version__, **known["versions"], **peer_versions(variants[1:])},
        "command": command,
        "commit": commit(),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "columns": COLUMNS,
        "rows": [row_of(one) for one in variants],
        "samples": {"seconds_per_step": {one["variant"]: one.pop("seconds") for one in variants}},
    }


def title_of(name: str, setting: Setting, compute: str) -> str:
    data = setting.recipe.data
    read = "" if setting.synthetic else f", reading {setting.data.resolve().name or setting.data}"
    return f"{name}: batch {data.global_batch}, {data.size}x{data.size}, {compute}{read}"


def about_ratios(recipe: Recipe, peers: list[dict[str, Any]]) -> list[str]:
    """Where ours has more to do in a step than a peer."""
    more = [] if type(recipe.optimizer) is Sgd else [named(recipe.optimizer)]
    more += ["averaged weights"] if recipe.ema else []
    if not peers or not more:
        return []
    return [f"Ours has {' and '.join(more)} in its steps, peers have plain SGD: a ratio is of unlike work."]


def named(optimizer: object) -> str:
    known = type(optimizer) in (AdamW, Lars, RmsProp, Thor)
    return type(optimizer).__name__ if known else "an optimizer of its own"


def about_ceilings(variants: list[dict[str, Any]], compute: str) -> list[str]:
    """A step that goes beyond what was measured as the best shows that this was not the best."""
    beyond = {
        f"No matrix peak is given: a step multiplies faster than the large {compute} product did.": "matrix_share",
        "No share of the bandwidth is given: a step's data lie in caches, the large copy's do not.": "bandwidth_share",
    }
    return [
        line for line, key in beyond.items() if any(one[key] is None and "flop" in one["counted"] for one in variants)
    ]


def titles_of(outcome: Outcome) -> list[str]:
    return [one.title for one in outcome.measured]


def pick(outcome: Outcome, title: str) -> Measured:
    return next(one for one in outcome.measured if one.title == title)


def variant_record(
    runs: list[Measured], outcomes: list[Outcome], setting: Setting, best: dict[str, float]
) -> dict[str, Any]:
    """One variant over all repetitions: the windows of all of them together, and each by itself."""
    batch, last = setting.recipe.data.global_batch, runs[-1]
    windows = Sample([value for run in runs for value in run.seconds.values])
    ours = [value for one in outcomes for value in one.ours.seconds.values]
    seconds, work = windows.median, last.work
    return {
        "variant": last.title,
        "peer": last.peer,
        "way": last.way,
        "images_per_s": batch / seconds,
        "ms_per_step": 1000 * seconds,
        "ms_quartiles": [1000 * value for value in windows.quartiles],
        "spread": windows.spread if len(windows.values) > 1 else None,
        "ours_is": ratio(windows.values, ours),
        "memory_bytes": max((run.memory_bytes for run in runs if run.memory_bytes is not None), default=None),
        "build_s": runs[0].build_s,
        "first_step_s": runs[0].first_step_s,
        "counted": {key: value for key, value in asdict(work).items() if value is not None},
        "bandwidth_share": share(work.bytes_least, seconds, best["bandwidth_bytes_per_s"]),
        "matrix_share": share(work.flop, seconds, best["matrix_flop_per_s"]),
        "time": time_record(runs, 1000 * seconds),
        "runs": [run_record(run, batch) for run in runs],
        "seconds": windows.values,
    }


def share(work: int | None, seconds: float, best: float) -> float | None:
    """None, too, where it would be more than all: what is called the best was not measured well then."""
    found = None if work is None else work / seconds / best
    return None if found is None or found > 1 else found


def time_record(runs: list[Measured], ms_per_step: float) -> dict[str, Any]:
    """Milliseconds of a step by kind, host gaps and data wait: medians over the repetitions, which together are brought
    to the step as it is told."""
    looks = [run.shares for run in runs]
    if looks[-1].why_not or not looks[-1].by_kind:
        return {"why_not": looks[-1].why_not or "no profile was asked for"}
    kinds = list(dict.fromkeys(kind for look in looks for kind in look.by_kind))
    found = {kind: median(look.by_kind.get(kind, 0.0) for look in looks) for kind in kinds}
    gaps, waiting = median(look.host_gaps for look in looks), median(look.data_wait for look in looks)
    scale = ms_per_step / (sum(found.values()) + gaps + waiting)
    own = ms_per_step / (1000 * runs[-1].seconds.median)
    return {
        "ms": {kind: scale * time for kind, time in found.items()},
        "host_gaps_ms": scale * gaps,
        "data_wait_ms": scale * waiting,
        "kernels_per_step": looks[-1].kernels,
        "largest": [{**one, "ms": own * one["ms"]} for one in looks[-1].largest],
    }


def run_record(run: Measured, batch: int) -> dict[str, float]:
    return {
        "images_per_s": batch / run.seconds.median,
        "ms_per_step": 1000 * run.seconds.median,
        "ours_is": run.ratio,
        "first_step_s": run.first_step_s,
    }


def peer_versions(peers: list[dict[str, Any]]) -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in dict.fromkeys(one["peer"] for one in peers):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # `plain` is no package, and a peer may lie on the path without having been installed
    return found


def row_of(one: dict[str, Any]) -> dict[str, str]:
    """The same as a person reads it."""
    cells = (
        one["variant"],
        f"{one['images_per_s']:,.1f}" if one["images_per_s"] < 1000 else f"{one['images_per_s']:,.0f}",
        f"{one['ms_per_step']:,.2f}",
        percent(one["spread"]),
        "" if one["peer"] == "viaduct" else f"{one['ours_is']:.3f}x",
        "" if one["memory_bytes"] is None else f"{one['memory_bytes'] / 2**30:.2f} GiB",
        f"{one['first_step_s']:.1f} s",
        percent(one["bandwidth_share"]),
        percent(one["matrix_share"]),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def check_json_place(path: Path) -> None:
    """Whether the figures can be written there at the end; tried, since only that is sure."""
    if path.is_dir():
        raise BadValue(f"--json {path} is a folder.", f"Name a file: --json {path / 'figures.json'}")
    check_place(path, ".json", BEGINS, "a file of `viaduct bench`", "--json")
    folder = path.resolve().parent  # of the file that a link leads to
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadValue(f"{path} cannot be written: {folder}: {error.strerror}.", "Name another place.") from None


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Through a link, which stays."""
    write_result(path.resolve(), (json.dumps(record, indent=1) + "\n").encode())

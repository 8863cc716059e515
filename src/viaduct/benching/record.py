"""What is written of a measurement: the figures, the windows they come from, and everything needed to repeat it."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from viaduct import __version__
from viaduct.benching.measure import Lengths, Measured, Outcome
from viaduct.benching.ours import Setting
from viaduct.benching.starts import Started
from viaduct.data.places import check_place, write_result
from viaduct.devices.timing import Sample, ratio
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
        "title": f"{name}: batch {recipe.data.global_batch}, {recipe.data.size}x{recipe.data.size}, {last.compute}",
        "recipe": name,
        "model": recipe.model if isinstance(recipe.model, str) else "own network",
        "batch": recipe.data.global_batch,
        "size": recipe.data.size,
        "precision": last.compute,
        "mode": recipe.mode,
        "sink": recipe.sink,
        "data": "synthetic" if setting.synthetic else str(setting.data),
        **asdict(lengths),
        "repeats": len(outcomes),
        **variants[0],
        "peers": variants[1:],
        "left_out": {key: why for one in outcomes for key, why in one.absent.items()},
        "ceilings": best,
        **({"starts": started[0], "starts_left_out": started[1]} if started else {}),
        "notes": last.notes,
        "machine": known,
        "versions": {"viaduct": __version__, **known["versions"], **peer_versions(variants[1:])},
        "command": command,
        "commit": commit(),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "columns": COLUMNS,
        "rows": [row_of(one) for one in variants],
        "samples": {"seconds_per_step": {one["variant"]: one.pop("seconds") for one in variants}},
    }


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
        "spread": windows.spread,
        "ours_is": ratio(windows.values, ours),
        "memory_bytes": max((run.memory_bytes for run in runs if run.memory_bytes is not None), default=None),
        "build_s": runs[0].build_s,
        "first_step_s": runs[0].first_step_s,
        "counted": {key: value for key, value in asdict(work).items() if value is not None},
        "bandwidth_share": share(work.bytes_least, seconds, best["bandwidth_bytes_per_s"]),
        "matrix_share": share(work.flop, seconds, best["matrix_flop_per_s"]),
        "time": time_record(runs),
        "runs": [run_record(run, batch) for run in runs],
        "seconds": windows.values,
    }


def share(work: int | None, seconds: float, best: float) -> float | None:
    return None if work is None else work / seconds / best


def time_record(runs: list[Measured]) -> dict[str, Any]:
    """Milliseconds of a step by kind, host gaps and data wait: medians over the repetitions."""
    looks = [run.shares for run in runs]
    if looks[-1].why_not or not looks[-1].by_kind:
        return {"why_not": looks[-1].why_not or "no profile was asked for"}
    kinds = list(dict.fromkeys(kind for look in looks for kind in look.by_kind))
    return {
        "ms": {kind: median(look.by_kind.get(kind, 0.0) for look in looks) for kind in kinds},
        "host_gaps_ms": median(look.host_gaps for look in looks),
        "data_wait_ms": median(look.data_wait for look in looks),
        "kernels_per_step": looks[-1].kernels,
        "largest": looks[-1].largest,
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
        f"{100 * one['spread']:.1f} %",
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
    check_place(path, ".json", BEGINS, "a file of `viaduct bench`", "--json")


def write_record(path: Path, record: dict[str, Any]) -> None:
    write_result(path, (json.dumps(record, indent=1) + "\n").encode())

"""JSON record of a measurement: its figures, the time of every window, and everything needed to repeat it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from viaduct import __version__
from viaduct.benching.measure import Lengths, Outcome, VariantResult
from viaduct.benching.ours import Setting
from viaduct.benching.starts import StartResults, format_starts
from viaduct.data.output_files import check_output, write_result
from viaduct.devices.base import select_known
from viaduct.devices.hardware import find_package_version
from viaduct.devices.timing import Sample, compute_speedup
from viaduct.errors import BadValue
from viaduct.recipes import AdamW, Lars, Recipe, RmsProp, Sgd, Thor
from viaduct.training.summary import describe_machine, read_commit

RECORD_PREFIX = (
    b'{\n "kind": "benchmark",\n "verb": "bench"'  # first bytes of a record; --json replaces only such a file
)
# "ours is": images/s of ours divided by the variant's; "bandwidth" and "matrix peak": shares of measured peak rates.
COLUMNS = ["variant", "images/s", "ms/step", "spread", "ours is", "memory", "first step", "bandwidth", "matrix peak"]


def make_record(
    name: str,
    setting: Setting,
    lengths: Lengths,
    outcomes: list[Outcome],
    command: str,
    starts: StartResults | None = None,
) -> dict[str, Any]:
    """Return the record of all repetitions of a measurement, which --json writes."""
    recipe, last = setting.recipe, outcomes[-1]
    best = {
        "bandwidth_bytes_per_s": max(outcome.ceilings.bandwidth for outcome in outcomes),
        "matrix_flop_per_s": max(outcome.ceilings.matrix for outcome in outcomes),
    }
    by_title = [{result.title: result for result in outcome.results} for outcome in outcomes]
    variants = [
        build_variant_record([results[title] for results in by_title], outcomes, setting, best)
        for title in by_title[-1]
        if all(title in results for results in by_title)
    ]
    starts_record: dict[str, Any] = {}
    if starts:
        starts_record = {"starts": starts.starts, "starts_left_out": starts.failed}
        starts_record["starts_told"] = format_starts(starts)
    machine_facts = describe_machine(setting.device)
    peer_versions = {variant["peer"]: find_package_version(variant["peer"]) for variant in variants[1:]}
    return {
        "kind": "benchmark",
        "verb": "bench",
        "title": format_title(name, setting, last.compute),
        "recipe": name,
        "model": recipe.model if isinstance(recipe.model, str) else "own network",
        "batch": recipe.data.global_batch,
        "size": recipe.data.size,
        "precision": last.compute,
        **last.facts,
        "data": "synthetic" if setting.synthetic else str(setting.data),
        **asdict(lengths),  # steps, windows, warmup, profile
        "repeats": len(outcomes),
        **variants[0],
        "peers": variants[1:],
        "left_out": {name: why for outcome in outcomes for name, why in outcome.unavailable.items()},
        "ceilings": best,
        **starts_record,
        "notes": [
            *last.notes,
            *describe_unequal_work(recipe, variants[1:]),
            *describe_exceeded_ceilings(variants, last.compute),
        ],
        "machine": machine_facts,
        "versions": {"viaduct": __version__, **machine_facts["versions"], **select_known(peer_versions)},
        "command": command,
        "commit": read_commit(),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "columns": COLUMNS,
        "rows": [format_row(variant) for variant in variants],
        "samples": {"seconds_per_step": {variant["variant"]: variant.pop("seconds") for variant in variants}},
    }


def format_title(name: str, setting: Setting, compute: str) -> str:
    data = setting.recipe.data
    source = "" if setting.synthetic else f", reading {setting.data.resolve().name or setting.data}"
    return f"{name}: batch {data.global_batch}, {data.size}x{data.size}, {compute}{source}"


def describe_unequal_work(recipe: Recipe, peers: list[dict[str, Any]]) -> list[str]:
    """Return a note if ours has another optimizer than the peers, or averaged weights."""
    optimizer = type(recipe.optimizer)
    name = optimizer.__name__ if optimizer in (AdamW, Lars, RmsProp, Thor) else "an optimizer of its own"
    extra_work = [] if optimizer is Sgd else [name]
    extra_work += ["averaged weights"] if recipe.ema else []
    if not peers or not extra_work:
        return []
    return [f"Ours uses {' and '.join(extra_work)}, peers use plain SGD: the ratios compare unequal work."]


def describe_exceeded_ceilings(variants: list[dict[str, Any]], compute: str) -> list[str]:
    """Return a note for each peak rate that the steps of some variant exceeded; its share of that rate is None."""
    notes = {
        "matrix_share": f"No matrix share is given for a step that multiplies faster than the large {compute} product.",
        "bandwidth_share": "No share of the bandwidth is given for a step that moves bytes faster than the large copy, "
        "probably because its data fit a cache.",
    }
    return [
        note for key, note in notes.items() if any(row[key] is None and "flop" in row["counted"] for row in variants)
    ]


def build_variant_record(
    runs: list[VariantResult], outcomes: list[Outcome], setting: Setting, best: dict[str, float]
) -> dict[str, Any]:
    """Return a variant's figures over the windows of all repetitions, and under "runs" those of each repetition.

    The seconds of building and of the first step are those of the first repetition, which may have compiled; the memory
    is the largest.
    """
    batch, last = setting.recipe.data.global_batch, runs[-1]
    windows = Sample([value for run in runs for value in run.seconds.values])
    ours = [value for outcome in outcomes for value in outcome.ours.seconds.values]
    seconds, work = windows.median, last.work
    return {
        "variant": last.title,
        "peer": last.peer,
        "way": last.mode,
        "images_per_s": batch / seconds,
        "ms_per_step": 1000 * seconds,
        "ms_quartiles": [1000 * value for value in windows.quartiles],
        "spread": windows.spread if len(windows.values) > 1 else None,
        "ours_is": compute_speedup(windows.values, ours),
        "memory_bytes": max((run.memory_bytes for run in runs if run.memory_bytes is not None), default=None),
        "build_s": runs[0].build_s,
        "first_step_s": runs[0].first_step_s,
        "counted": {key: value for key, value in asdict(work).items() if value is not None},
        "bandwidth_share": compute_share(work.bytes_least, seconds, best["bandwidth_bytes_per_s"]),
        "matrix_share": compute_share(work.flop, seconds, best["matrix_flop_per_s"]),
        "time": build_time_record(runs, 1000 * seconds),
        "runs": [build_run_record(run, batch) for run in runs],
        "seconds": windows.values,
    }


def compute_share(work: int | None, seconds: float, best: float) -> float | None:
    """Return the share of the peak rate `best` that a step of so much `work` achieves; None if unknown or above 1."""
    share = None if work is None else work / seconds / best
    return None if share is None or share > 1 else share


def build_time_record(runs: list[VariantResult], ms_per_step: float) -> dict[str, Any]:
    """Return milliseconds per step by kind, host gaps and data wait: medians over the repetitions with a profile.

    They are scaled so that they add up to `ms_per_step`. Without any profile, return only the reason, as `why_not`.
    """
    profiled = [run for run in runs if run.shares.by_kind]
    if not profiled:
        return {"why_not": runs[-1].shares.why_not or "no profile was asked for"}
    profiles = [run.shares for run in profiled]
    kinds = list(dict.fromkeys(kind for profile in profiles for kind in profile.by_kind))
    by_kind = {kind: median(profile.by_kind.get(kind, 0.0) for profile in profiles) for kind in kinds}
    gaps = median(profile.host_gaps for profile in profiles)
    waiting = median(profile.data_wait for profile in profiles)
    scale = ms_per_step / (sum(by_kind.values()) + gaps + waiting)
    last_scale = ms_per_step / (1000 * profiled[-1].seconds.median)
    return {
        "ms": {kind: scale * time for kind, time in by_kind.items()},
        "host_gaps_ms": scale * gaps,
        "data_wait_ms": scale * waiting,
        "kernels_per_step": profiles[-1].kernels,
        "largest": [{**kernel, "ms": last_scale * kernel["ms"]} for kernel in profiles[-1].largest],
    }


def build_run_record(run: VariantResult, batch: int) -> dict[str, float]:
    return {
        "images_per_s": batch / run.seconds.median,
        "ms_per_step": 1000 * run.seconds.median,
        "ours_is": run.ratio,
        "first_step_s": run.first_step_s,
    }


def format_row(variant: dict[str, Any]) -> dict[str, str]:
    """Return a variant's cells of the printed table, by column."""
    cells = (
        variant["variant"],
        f"{variant['images_per_s']:,.1f}" if variant["images_per_s"] < 1000 else f"{variant['images_per_s']:,.0f}",
        f"{variant['ms_per_step']:,.2f}",
        format_percent(variant["spread"]),
        "" if variant["peer"] == "viaduct" else f"{variant['ours_is']:.3f}x",
        "" if variant["memory_bytes"] is None else f"{variant['memory_bytes'] / 2**30:.2f} GiB",
        f"{variant['first_step_s']:.1f} s",
        format_percent(variant["bandwidth_share"]),
        format_percent(variant["matrix_share"]),
    )
    return dict(zip(COLUMNS, cells, strict=True))


def format_percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def check_json_path(path: Path) -> None:
    """Raise an error if the record cannot be written there; a temporary file tests the folder."""
    if path.is_dir():
        raise BadValue(f"--json {path} is a folder.", f"Name a file: --json {path / 'figures.json'}")
    check_output(path, ".json", RECORD_PREFIX, "a file of `viaduct bench`", "--json")
    folder = path.resolve().parent  # of the link's target
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadValue(f"{path} cannot be written: {folder}: {error.strerror}.", "Name another file.") from None


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the record as JSON; a symbolic link stays, and its target is written."""
    write_result(path.resolve(), (json.dumps(record, indent=1) + "\n").encode())

"""The start scripts of a migrated project: environment, one device, eight devices; for TensorFlow 1 a rank table."""

from __future__ import annotations

import re

from viaduct.migration.frameworks import TENSORFLOW, TORCH, Framework
from viaduct.migration.profiling_points import write_profiling_options
from viaduct.migration.run import Outcome
from viaduct.migration.training_flags import list_flags

RANKED = re.compile(r"LOCAL_RANK|local[_-]rank")
SPAWNS = re.compile(r"\bspawn\(")  # starts its ranks itself


def start_scripts(outcome: Outcome) -> dict[str, str]:
    """Return the texts of the start scripts by path; none with --to any or if nothing was changed.

    They are in `scripts`, or in `npu_scripts` or `mlu_scripts` if the project has one of these files there. No file of
    the project is replaced.
    """
    if not outcome.changed or outcome.options.to == "any":
        return {}
    files = make_start_scripts(outcome)
    there = {
        *outcome.walk.others,
        *outcome.walk.scripts,
        *outcome.walk.excluded,
        *outcome.walk.links,
        *outcome.walk.folders,
    }
    taken = any(f"scripts/{name}" in there for name in files) or "scripts" in {
        *outcome.walk.others,
        *outcome.walk.links,
    }
    folder = f"{outcome.options.to}_scripts" if taken else "scripts"
    return {f"{folder}/{name}": text for name, text in files.items() if f"{folder}/{name}" not in there}


def make_start_scripts(outcome: Outcome) -> dict[str, str]:
    """Return the start scripts by name, of TensorFlow 1 or of PyTorch, as `framework_started` says."""
    target = outcome.options.to
    assert target != "any"
    rules = {finding.rule for finding in outcome.findings if finding.status == "changed"}
    if framework_started(outcome) == TENSORFLOW:
        from viaduct.cluster.tf1_scripts import (
            render_files as make_tf1,
        )  # rank tables and all: only where they are written

        flags = [(flag.name, flag.default, flag.file) for flag in list_flags(outcome)]
        asked = {"profiling": write_profiling_options(outcome.options)} if outcome.options.profile else {}
        return make_tf1(target, outcome.entry, flags, **asked)
    from viaduct.cluster.torch_scripts import render_files as make_torch

    ranked = any(RANKED.search(file.new) and not SPAWNS.search(file.new) for file in outcome.changed)
    return make_torch(target, outcome.entry, ranked, "torch.data_parallel_ddp" in rules)


def framework_started(outcome: Outcome) -> Framework:
    """Return the framework of the entry script; if unknown or both, the one of which more files were changed."""
    found = outcome.frameworks.get(outcome.entry, frozenset())
    if len(found) == 1:
        return TORCH if TORCH in found else TENSORFLOW
    torch = {
        finding.file
        for finding in outcome.findings
        if finding.status == "changed" and finding.rule.startswith("torch.")
    }
    tensorflow = {item.file for item in outcome.findings if item.status == "changed" and item.rule.startswith("tf1.")}
    return TORCH if torch and len(torch) >= len(tensorflow) else TENSORFLOW

"""Render start scripts for a migrated project (cluster/project_scripts.py): choose their folder and their arguments."""

from __future__ import annotations

import re
from collections import Counter

from viaduct.migration.frameworks import TENSORFLOW, TORCH, Framework
from viaduct.migration.profiling_points import render_profiling_options
from viaduct.migration.results import Outcome
from viaduct.migration.training_flags import list_flags

LOCAL_RANK_TEXT = re.compile(r"LOCAL_RANK|local[_-]rank")
SPAWN_CALL = re.compile(r"\bspawn\(")  # the script starts its ranks itself


def render_start_scripts(outcome: Outcome) -> dict[str, str]:
    """Return the texts of the start scripts by path; {} with --to any or if no file was changed.

    The folder is `scripts`; if the project has one of the files there, or a file or link `scripts`, it is `npu_scripts`
    or `mlu_scripts`. Files that the project has in this folder too are left out.
    """
    if not outcome.changed_files or outcome.options.to == "any":
        return {}
    files, walk = render_by_name(outcome), outcome.walk
    files_and_links = {*walk.other_files, *walk.scripts, *walk.excluded, *walk.links}
    existing = files_and_links.union(walk.folders)
    is_taken = "scripts" in files_and_links or any(f"scripts/{name}" in existing for name in files)
    folder = f"{outcome.options.to}_scripts" if is_taken else "scripts"
    return {f"{folder}/{name}": text for name, text in files.items() if f"{folder}/{name}" not in existing}


def render_by_name(outcome: Outcome) -> dict[str, str]:
    """Return the texts of the start scripts by name, for the framework of the entry script."""
    from viaduct.cluster import project_scripts

    target = outcome.options.to
    assert target != "any"
    rules = {finding.rule for finding in outcome.findings if finding.status == "changed"}
    if find_entry_framework(outcome) == TENSORFLOW:
        flags = [(flag.name, flag.default, flag.file) for flag in list_flags(outcome)]
        profiling = {"profiling": render_profiling_options(outcome.options)} if outcome.options.profile else {}
        return project_scripts.render_tensorflow_files(target, outcome.entry, flags, **profiling)
    can_run_as_ranks = any(
        LOCAL_RANK_TEXT.search(file.new_text) and not SPAWN_CALL.search(file.new_text) for file in outcome.changed_files
    )
    needs_torchrun = "torch.data_parallel_ddp" in rules
    return project_scripts.render_torch_files(target, outcome.entry, can_run_as_ranks, needs_torchrun)


def find_entry_framework(outcome: Outcome) -> Framework:
    """Return the framework of the entry script; if unknown or both, that of more changed files, PyTorch if equal."""
    frameworks = outcome.frameworks.get(outcome.entry, frozenset())
    if len(frameworks) == 1:
        return TORCH if TORCH in frameworks else TENSORFLOW
    changed_files = {
        (finding.rule.partition(".")[0], finding.file) for finding in outcome.findings if finding.status == "changed"
    }
    counts = Counter(family for family, _ in changed_files)
    return TORCH if counts["torch"] and counts["torch"] >= counts["tf1"] else TENSORFLOW

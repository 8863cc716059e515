"""Projects whose migration is known by construction: no edit missed silently, none wrong, the ledger exact."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from migration.synthetic_projects import Counts, Placed, Synthetic, make_project, make_trainer
from viaduct.migration.options import Options
from viaduct.migration.results import FileResult, Outcome
from viaduct.migration.run import migrate_project

KINDS = (("torch", "npu"), ("torch", "mlu"), ("torch", "any"), ("tensorflow", "npu"))
SAMPLE, ALL = 12, 400
"""Projects of each kind in the suite, and in `make test-all`: 2,000 in all."""


@pytest.mark.parametrize(("framework", "to"), KINDS)
@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_sample_of_projects_is_migrated_exactly(tmp_path: Path, framework: str, to: str, seed: int) -> None:
    check(tmp_path, make_project(seed, framework, to), to)


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "to"), KINDS)
def test_all_projects_are_migrated_exactly(tmp_path: Path, framework: str, to: str) -> None:
    for seed in range(ALL):
        check(tmp_path / str(seed), make_project(seed, framework, to), to)


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_sample_of_trainings_comes_to_run_on_several_ranks(tmp_path: Path, seed: int) -> None:
    check(tmp_path, make_trainer(seed), "npu", distributed=True)


@pytest.mark.slow
def test_all_trainings_come_to_run_on_several_ranks(tmp_path: Path) -> None:
    for seed in range(ALL):
        check(tmp_path / str(seed), make_trainer(seed), "npu", distributed=True)


def check(folder: Path, project: Synthetic, to: str, distributed: bool = False) -> None:
    for path, text in project.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    outcome = migrate_project(folder, Options(to=to, distributed=distributed), 1)
    for placed in project.pieces:
        file = outcome.by_path[placed.file]
        result = result_of(file, project.files[placed.file], placed)
        if not placed.piece.holds and to != "any":
            assert result == list_expected_lines(placed), explain(project, placed)
        for text in placed.piece.holds:
            assert text in file.new_text, explain(project, placed)
    for file in outcome.changed_files:
        ast.parse(file.new_text)
    if distributed:
        new = "\n".join(file.new_text for file in outcome.changed_files)
        for text in ("NPUDistributedOptimizer(", "hccl_ops.broadcast", "initialize_system", "NpuOptimizer"):
            assert text in new
    assert count_places(outcome) == project.counts, "\n".join(
        f"# {path}\n{text}" for path, text in project.files.items()
    )


def result_of(file: FileResult, text: str, placed: Placed) -> list[str]:
    """Return the lines of the result that stem from the lines of a piece."""
    first, last = placed.line, placed.line + len(placed.piece.before) - 1
    if not file.changed:
        return text.split("\n")[first - 1 : last]
    new = file.new_text.split("\n")
    return [line for line, stem in zip(new, file.original_lines, strict=False) if first <= stem <= last]


def list_expected_lines(placed: Placed) -> list[str]:
    return [placed.indent + line for line in placed.piece.after]


def count_places(outcome: Outcome) -> Counts:
    """Return the counts of the ledger; manual and unresolved together are the project's `left`."""
    found: Counts = Counter()
    for location in outcome.places:
        left = location.state in ("manual", "unresolved") and location.requirement != "data_parallel"
        found[location.requirement, "left" if left else location.state] += 1
    return found


def explain(project: Synthetic, placed: Placed) -> str:
    return f"{placed.file}:{placed.line}\n{project.files[placed.file]}"

"""Mutations of migrated projects are named or "not proved", none "agrees"; other ways of writing the same never differ.

`python tests/carrying/mutation_verdicts.py` prints the counts of all projects.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.mutation_verdicts import Bench, judge_mutations, judge_rewrites
from carrying.sample_projects import SAMPLE_PROJECTS, SampleProject

NAMES = {base.name: base for base in SAMPLE_PROJECTS}
# Project, file, text of its migrated copy, mutated text, verdict.
MUTATIONS = {
    "a number on PYTHONPATH": ("pythonpath", "lib/settings.py", "DECAY = 1e-3", "DECAY = 1.1e-3", "differs"),
    "a line of the evaluation": ("plain", "train.py", 'reduction="sum"', 'reduction="mean"', "not proved"),
    "a line that one rank executes": ("ddp", "train.py", "loss.item() * 2", "loss.item() * 3", "not proved"),
    "a line that nobody executes": ("transformer", "train.py", "return floor\n", "return peak\n", "not proved"),
    "the order within a batch": ("sampler", "loading.py", "+ self.size] for", "+ self.size][::-1] for", "not proved"),
}  # fmt: skip
REWRITES = {
    "a rename": ("plain", "train.py", "output", "logits"),
    "the device by its number": ("transformer", "train.py", 'device = "npu"', 'device = "npu:0"'),
}


def open_bench(name: str, folder: Path) -> Bench:
    return Bench(NAMES[name], folder)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_named_or_not_proved(name: str, tmp_path: Path) -> None:
    project, file, old, new, verdict = MUTATIONS[name]
    bench = open_bench(project, tmp_path)
    text = (bench.copy / file).read_text()
    assert text.count(old) == 1
    answer = bench.carry({file: text.replace(old, new)})
    assert answer.verdict in ((verdict,) if verdict else ("differs", "not proved")), answer.stdout
    if answer.verdict == "differs":
        assert answer.names_line(file, text[: text.index(old)].count("\n") + 1), answer.stdout


@pytest.mark.parametrize("name", REWRITES)
def test_another_way_of_writing_the_same_agrees(name: str, tmp_path: Path) -> None:
    project, file, old, new = REWRITES[name]
    bench = open_bench(project, tmp_path)
    text = (bench.copy / file).read_text()
    assert old in text
    answer = bench.carry({file: text.replace(old, new)})
    assert answer.verdict == "agrees", answer.stdout


@pytest.mark.slow
@pytest.mark.parametrize("base", SAMPLE_PROJECTS, ids=lambda base: base.name)
def test_seeded_mutations_are_named_or_not_proved(base: SampleProject, tmp_path: Path) -> None:
    found = judge_mutations(Bench(base, tmp_path))
    assert not [str(row) for row in found.effective if row.verdict not in ("differs", "not proved", "could not run")]
    differing = [row for row in found.effective if row.verdict == "differs"]
    assert sum(row.is_named for row in differing) >= 0.9 * len(differing), [str(row) for row in differing]


@pytest.mark.slow
@pytest.mark.parametrize("base", SAMPLE_PROJECTS, ids=lambda base: base.name)
def test_seeded_rewrites_never_differ(base: SampleProject, tmp_path: Path) -> None:
    found = judge_rewrites(Bench(base, tmp_path))
    assert not [str(row) for row in found if row.verdict not in ("agrees", "not proved")]

"""Verdicts of `viaduct carry` on changed migrated projects, and the effect of each change without viaduct.

python tests/carrying/mutation_verdicts.py [PROJECT …] > judged.jsonl
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from carrying.forked_carry import carry_with_forks
from carrying.mutating import Mutation, find_mutations, shuffle
from carrying.plain_runs import ADAPTER, run_without_viaduct
from carrying.rewriting import find_rewrites
from carrying.sample_projects import SAMPLE_PROJECTS, SampleProject
from forked_viaduct import start_command

Result = TypeVar("Result")
COUNT = 15  # mutations of each project, and rewrites
SEED = 1


@dataclass(frozen=True)
class CommandResult:
    """Result of one `viaduct carry`."""

    record: dict[str, Any]
    output: str

    @property
    def verdict(self) -> str:
        return str(self.record.get("verdict", "no verdict"))

    @property
    def doubts(self) -> list[str]:
        return [doubt["text"] for doubt in self.record.get("not_proved", [])]

    @property
    def kinds(self) -> list[str]:
        return [doubt["kind"] for doubt in self.record.get("not_proved", [])]

    def names_line(self, file: str, line: int) -> bool:
        """Return True if the first suspect is this line, or the one before or after it."""
        suspects = [(suspect["file"], suspect["line"]) for suspect in self.record.get("suspects", [])[:1]]
        return any(suspect == file and abs(number - line) <= 1 for suspect, number in suspects)


class Bench:
    """A project and its migrated copy, in which changes are made and judged."""

    def __init__(self, base: SampleProject, folder: Path) -> None:
        self.base, self.folder = base, folder
        self.project, self.copy = folder / "home" / "project", folder / "copy"  # a run mirrors what lies beside it
        (folder / "recorded").mkdir()
        base.copy_to(self.project)
        base.migrate_to(self.copy)

    @cached_property
    def plain_results(self) -> list[dict[str, str]]:
        """Return the results of the unchanged copy, by rank."""
        found = self.run_without_viaduct(self.copy)
        assert found is not None, f"{self.base.name} does not run"
        return found

    def run_without_viaduct(self, tree: Path) -> list[dict[str, str]] | None:
        """Return the results of each rank (plain_runs.py); None if a rank failed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            with start_command(run_without_viaduct, self.base, tree, Path(folder)) as command:
                command.communicate()
            answers = [Path(folder) / f"{rank}.json" for rank in range(self.base.ranks)]
            if not all(answer.exists() for answer in answers):
                return None
            return [json.loads(answer.read_text()) for answer in answers]

    @contextmanager
    def make_changed_copy(self, files: dict[str, str]) -> Iterator[Path]:
        """Provide a copy of the migrated project with other texts in some files."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            tree = Path(folder) / "copy"
            shutil.copytree(self.copy, tree)
            for name, text in files.items():
                (tree / name).write_text(text)
            yield tree

    def find_effect(self, files: dict[str, str]) -> str:
        """Return the effect of a change without viaduct: "none", "fails", or the names of the results that differ."""
        with self.make_changed_copy(files) as tree:
            found = self.run_without_viaduct(tree)
        if found is None:
            return "fails"
        differing = [
            name
            for name in self.plain_results[0]
            for a, b in zip(self.plain_results, found, strict=True)
            if a[name] != b[name]
        ]
        return ", ".join(dict.fromkeys(differing)) or "none"

    def carry(self, files: dict[str, str]) -> CommandResult:
        with self.make_changed_copy(files) as tree:
            out = tree.parent / "carried"
            words = [*self.base.words, "--migrated", str(tree), "--out", str(out)]
            answer = carry_with_forks(
                self.project,
                *words,
                recorded=self.folder / "recorded",
                framework=self.base.framework,
                **self.base.environment,
            )
            record = out / "carry.json"
            return CommandResult(
                json.loads(record.read_text()) if record.exists() else {}, answer.stdout + answer.stderr
            )


def run_in_parallel(work: Callable[..., Result], items: Iterable[Any]) -> list[Result]:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True)
class JudgedChange:
    """A change, its effect without viaduct, and the result of `carry`."""

    project: str
    change: Mutation
    effect: str
    answer: CommandResult

    @property
    def verdict(self) -> str:
        return self.answer.verdict

    @property
    def is_named(self) -> bool:
        return self.answer.names_line(self.change.file, self.change.line)

    def __str__(self) -> str:
        return f"{self.project}: {self.change} ({self.effect}): {self.verdict}; {'; '.join(self.answer.doubts)}"


@dataclass
class JudgedMutations:
    """Mutations of a project that change its results, and the numbers of other mutations that were tried."""

    effective: list[JudgedChange]
    equivalent: int = 0
    failing: int = 0


def judge_mutations(bench: Bench, count: int = COUNT, seed: int = SEED) -> JudgedMutations:
    """Carry `count` mutations that change the results and do not stop the script, the first in a seeded order."""
    found = JudgedMutations([])
    changes = [change for change in find_mutations(bench.copy) if not is_left_out(bench.copy, change)]
    waiting = shuffle(changes, f"{seed} {bench.base.name}")
    while waiting and len(found.effective) < count:
        batch, waiting = waiting[: count - len(found.effective)], waiting[count - len(found.effective) :]
        effects = run_in_parallel(lambda change: bench.find_effect({change.file: change.text}), batch)
        found.equivalent += effects.count("none")
        found.failing += effects.count("fails")
        chosen = [(change, effect) for change, effect in zip(batch, effects, strict=True) if is_effect(effect)]
        found.effective += judge(bench, chosen)
    return found


def is_left_out(copy: Path, change: Mutation) -> bool:
    """Return True for a change in a line that only the card needs: runs without viaduct leave these lines out."""
    return bool(ADAPTER.match((copy / change.file).read_text().splitlines()[change.line - 1]))


def is_effect(effect: str) -> bool:
    return effect not in ("none", "fails")


def judge_rewrites(bench: Bench, count: int = COUNT, seed: int = SEED) -> list[JudgedChange]:
    """Carry the first `count` rewrites in a seeded order, after checking that they change no result."""
    changes = [change for change in find_rewrites(bench.copy) if not is_left_out(bench.copy, change)]
    changes = shuffle(changes, f"{seed} {bench.base.name}")[:count]
    effects = run_in_parallel(lambda change: bench.find_effect({change.file: change.text}), changes)
    assert set(effects) == {"none"}, [str(c) for c, effect in zip(changes, effects, strict=True) if effect != "none"]
    return judge(bench, list(zip(changes, effects, strict=True)))


def judge(bench: Bench, changes: list[tuple[Mutation, str]]) -> list[JudgedChange]:
    answers = run_in_parallel(lambda item: bench.carry({item[0].file: item[0].text}), changes)
    return [JudgedChange(bench.base.name, *item, answer) for item, answer in zip(changes, answers, strict=True)]


def main(names: list[str]) -> None:
    """Print a line of JSON for each change, and one with counts for each project."""
    for base in SAMPLE_PROJECTS:
        if names and base.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            bench, begin = Bench(base, Path(folder)), time.monotonic()
            mutated, rewritten = judge_mutations(bench), judge_rewrites(bench)
        for kind, rows in (("mutation", mutated.effective), ("rewrite", rewritten)):
            for row in rows:
                print(json.dumps({"kind": kind, "project": row.project, "operator": row.change.operator,
                                  "change": str(row.change), "effect": row.effect, "verdict": row.verdict,
                                  "named": row.is_named, "doubts": row.answer.kinds}))  # fmt: skip
        counts = {"equivalent": mutated.equivalent, "failing": mutated.failing}
        print(json.dumps({"kind": "project", "project": base.name, **counts, "seconds": time.monotonic() - begin}))
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

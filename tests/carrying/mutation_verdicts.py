"""Verdicts of `viaduct carry` on a changed migrated project, beside the real effect of the change.

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
from carrying.plain_runs import ADAPTER, run_plainly
from carrying.rewriting import find_rewrites
from carrying.sample_projects import SAMPLE_PROJECTS, SampleProject
from forked_viaduct import start_command

Result = TypeVar("Result")
COUNT = 15  # changes of a project: 210 in all
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

    def names(self, file: str, line: int) -> bool:
        """Return True if the first place to look at is the given line, or one beside it."""
        suspects = [(suspect["file"], suspect["line"]) for suspect in self.record.get("suspects", [])[:1]]
        return any(suspect == file and abs(number - line) <= 1 for suspect, number in suspects)


class Bench:
    """A project, its migrated copy, and what the copy computes without viaduct."""

    def __init__(self, base: SampleProject, folder: Path) -> None:
        self.base, self.folder = base, folder
        self.project, self.copy = folder / "home" / "project", folder / "copy"  # a run mirrors what lies beside it
        (folder / "recorded").mkdir()
        base.copy_to(self.project)
        base.migrate_to(self.copy)

    @cached_property
    def plain(self) -> list[dict[str, str]]:
        found = self.run_plainly(self.copy)
        assert found is not None, f"{self.base.name} does not run"
        return found

    def run_plainly(self, tree: Path) -> list[dict[str, str]] | None:
        """Return what each rank gave; None where one failed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            with start_command(run_plainly, self.base, tree, Path(folder)) as command:
                command.communicate()
            answers = [Path(folder) / f"{rank}.json" for rank in range(self.base.ranks)]
            if not all(answer.exists() for answer in answers):
                return None
            return [json.loads(answer.read_text()) for answer in answers]

    @contextmanager
    def changed(self, files: dict[str, str]) -> Iterator[Path]:
        """The copy with other content in some files."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            tree = Path(folder) / "copy"
            shutil.copytree(self.copy, tree)
            for name, text in files.items():
                (tree / name).write_text(text)
            yield tree

    def find_effect(self, files: dict[str, str]) -> str:
        """Say what a change does when nobody looks on: "none", "fails", or what differs."""
        with self.changed(files) as tree:
            found = self.run_plainly(tree)
        if found is None:
            return "fails"
        differing = [
            name for name in self.plain[0] for a, b in zip(self.plain, found, strict=True) if a[name] != b[name]
        ]
        return ", ".join(dict.fromkeys(differing)) or "none"

    def carry(self, files: dict[str, str]) -> CommandResult:
        with self.changed(files) as tree:
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


def in_parallel(work: Callable[..., Result], items: Iterable[Any]) -> list[Result]:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True)
class Judged:
    """A change, what it does without viaduct, and what `carry` says of it."""

    project: str
    change: Mutation
    effect: str
    answer: CommandResult

    @property
    def verdict(self) -> str:
        return self.answer.verdict

    @property
    def is_named(self) -> bool:
        return self.answer.names(self.change.file, self.change.line)

    def __str__(self) -> str:
        return f"{self.project}: {self.change} ({self.effect}): {self.verdict}; {'; '.join(self.answer.doubts)}"


@dataclass
class Mutated:
    """Mutations of a project that change what it computes, and how many of the others were met on the way."""

    effective: list[Judged]
    equivalent: int = 0
    failing: int = 0


def judge_mutations(bench: Bench, count: int = COUNT, seed: int = SEED) -> Mutated:
    """Carry the first mutations, in a seeded order, that change something without stopping the script."""
    found = Mutated([])
    changes = [change for change in find_mutations(bench.copy) if not is_left_out(bench.copy, change)]
    waiting = shuffle(changes, f"{seed} {bench.base.name}")
    while waiting and len(found.effective) < count:
        batch, waiting = waiting[: count - len(found.effective)], waiting[count - len(found.effective) :]
        effects = in_parallel(lambda change: bench.find_effect({change.file: change.text}), batch)
        found.equivalent += effects.count("none")
        found.failing += effects.count("fails")
        chosen = [(change, effect) for change, effect in zip(batch, effects, strict=True) if is_effect(effect)]
        found.effective += judge(bench, chosen)
    return found


def is_left_out(copy: Path, change: Mutation) -> bool:
    """Return True for lines that only the card has: without it they are taken away, and nothing says what they do."""
    return bool(ADAPTER.match((copy / change.file).read_text().splitlines()[change.line - 1]))


def is_effect(effect: str) -> bool:
    return effect not in ("none", "fails")


def judge_rewrites(bench: Bench, count: int = COUNT, seed: int = SEED) -> list[Judged]:
    """Carry the first rewrites in a seeded order; that they change nothing is checked too."""
    changes = [change for change in find_rewrites(bench.copy) if not is_left_out(bench.copy, change)]
    changes = shuffle(changes, f"{seed} {bench.base.name}")[:count]
    effects = in_parallel(lambda change: bench.find_effect({change.file: change.text}), changes)
    assert set(effects) == {"none"}, [str(c) for c, effect in zip(changes, effects, strict=True) if effect != "none"]
    return judge(bench, list(zip(changes, effects, strict=True)))


def judge(bench: Bench, changes: list[tuple[Mutation, str]]) -> list[Judged]:
    answers = in_parallel(lambda item: bench.carry({item[0].file: item[0].text}), changes)
    return [Judged(bench.base.name, *item, answer) for item, answer in zip(changes, answers, strict=True)]


def main(names: list[str]) -> None:
    """Print what became of every change, and the counts; a line of JSON for each."""
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

"""Run directories and index files that are damaged in any way: a message, or the work is done; never a traceback.

The damage is drawn from a seed: 300 inputs each time, 10,000 where there is time for them.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from damage import damage_index, damage_run
from data.record_files import write_split
from forked_viaduct import start_command, viaduct
from test_bad_paths import RECIPE, TimeUp
from viaduct.errors import BadRun

SECONDS = 60
# What is called with a damaged run; RUN is the run, OTHER a sound one.
CALLS = [
    ["evaluate", "RUN", "--device", "cpu"],
    ["evaluate", "RUN", "--all", "--json", "--device", "cpu"],
    ["train", "--run", "RUN", "--device", "cpu"],
    ["train", "--run", "RUN", "--device", "cpu", "--steps", "3"],
    ["train", "tiny.py", "--run", "RUN", "--device", "cpu"],
    ["train", "tiny.py", "--init", "RUN", "--run", "new", "--device", "cpu"],
    ["compare", "RUN", "OTHER"],
    ["weights", "show", "RUN"],
    ["weights", "export", "RUN", "--format", "safetensors", "--out", "out.safetensors"],
    ["launch", "--ranks", "2", "--", "train", "--run", "RUN", "--device", "cpu"],
]
INDEX_CALLS = [["data", "check", "records"], ["data", "index", "records"], ["data", "show", "records"]]


def make_sound(folder: Path) -> None:
    (folder / "tiny.py").write_text(RECIPE.replace("steps=1)", "steps=2)"))
    for run in ("run", "other"):
        made = viaduct("train", "tiny.py", "--run", run, "--save-every", "1", "--log-every", "1", cwd=folder)
        assert made.returncode == 0, made.stderr
    (folder / "run" / ".reached").write_bytes((2).to_bytes(8, "little"))
    write_split(folder / "records", "train", [4])
    write_split(folder / "records", "validation", [2])
    assert viaduct("data", "index", "records", cwd=folder).returncode == 0


def fuzz(first: int, count: int, sound: Path, work: Path) -> None:
    """Damage and call, in this process; write down what ended in a traceback or took too long."""
    from viaduct import cli
    from viaduct.cluster import launch
    from viaduct.training.loop import Training
    from viaduct.verbs import launch as launching

    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    run_step = Training.run_step

    def take_few(self: Training, batch: Any) -> None:
        if self.step > 8:  # a recipe that was changed to train for a year does
            raise BadRun("enough.")
        run_step(self, batch)

    Training.run_step = take_few  # type: ignore[method-assign]
    launching.run_cluster = launch.run_local = lambda *given, **more: 0  # type: ignore[assignment]

    def raise_time_up(number: int, frame: Any) -> None:
        raise TimeUp

    output = (work / "output").open("w+")
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    failures = []
    for seed in range(first, first + count):
        rng = random.Random(seed)
        folder = work / "case"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sound, folder)
        os.chdir(folder)
        words, done = damaged_case(folder, rng)
        sys.argv = ["viaduct", *words]
        output.truncate(0)
        signal.signal(signal.SIGALRM, raise_time_up)
        signal.alarm(SECONDS)
        try:
            cli.main()
            failures.append([seed, done, words, "no exit code"])
        except SystemExit as error:
            if error.code not in (0, 1, 2):
                failures.append([seed, done, words, f"exit code {error.code}"])
        except TimeUp:
            failures.append([seed, done, words, "too long: " + "".join(traceback.format_exc()[-1500:])])
        except BaseException:
            failures.append([seed, done, words, traceback.format_exc()[-2500:]])
        signal.alarm(0)
    (work / "failures.json").write_text(json.dumps(failures))


def damaged_case(folder: Path, rng: random.Random) -> tuple[list[str], str]:
    if rng.random() < 0.25:
        index = next((folder / "records").glob("train*.idx.npy"))
        return rng.choice(INDEX_CALLS), damage_index(index, rng)
    words = rng.choice(CALLS)
    done = damage_run(folder / "run", rng)
    return [{"RUN": "run", "OTHER": "other"}.get(argument, argument) for argument in words], done


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    make_sound(folder)
    return folder


def check(first: int, count: int, sound: Path, work: Path) -> None:
    with start_command(fuzz, first, count, sound, work) as child:
        _, stderr = child.communicate(SECONDS * count)
    found = work / "failures.json"
    assert found.exists(), f"it ended with {child.returncode}: {(work / 'output').read_text()[-3000:]}{stderr}"
    failures = json.loads(found.read_text())
    lines = [f"{seed}: {done}\n  viaduct {' '.join(words)}\n{what}" for seed, done, words, what in failures[:8]]
    assert not failures, f"{len(failures)} of {count}:\n" + "\n".join(lines)


@pytest.mark.parametrize("part", range(2))
def test_a_damaged_run_ends_in_no_traceback(part: int, sound: Path, tmp_path: Path) -> None:
    check(150 * part, 150, sound, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_damaged_runs_end_in_no_traceback(part: int, sound: Path, tmp_path: Path) -> None:
    check(1000 + 1000 * part, 1000, sound, tmp_path)

"""Ranks that are killed: the run is begun again at its last checkpoint, and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.ranks import run_on_ranks
from training.test_distributed import run_recipe, samples
from viaduct.recipes import Recipe, load
from viaduct.training.rundir import RunDir

# Minutes of processes that are killed and started again: `make test-all`.
pytestmark = pytest.mark.slow

RECIPE = """
import time
from torch import nn
from training.test_distributed import Witness
from viaduct.recipes import Checkpoint, Cosine, Evaluation, Log, Parallel, Precision, Recipe, Sgd, Shapes
from viaduct.training import Callback

class Slowly(Callback):
    every_rank = True

    def step(self, training):
        time.sleep(0.03)

def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3),
        nn.Flatten(), nn.Linear(8 * 49, classes),
    )

recipe = Recipe(
    model=network,
    data=Shapes(global_batch=32, size=16, train_images=320, validation_images=40, pad=2, flip=True),
    optimizer=Sgd(lr=0.05, weight_decay=1e-4),
    schedule=Cosine(warmup_epochs=1),
    precision=Precision("fp32"),
    parallel=Parallel(sync_norm=True, hang_seconds=30),
    epochs=15,
    evaluation=Evaluation(every_epochs=5),
    checkpoint=Checkpoint(every_steps=7, keep=2),
    log=Log(every_steps=5),
    deterministic=True,
    callbacks=(Slowly(), Witness()),
)
"""
STEPS = 150
TESTS = str(Path(__file__).parents[1])
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([TESTS, *sys.path])}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "mine.py"
    path.write_text(RECIPE)
    return path


def by_file(run: Path, recipe: Path) -> None:
    loaded: Recipe = load(str(recipe)).recipe
    run_recipe(run, loaded)


@pytest.fixture(scope="module")
def undisturbed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks that nobody kills."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert [result.error for result in run_on_ranks(4, by_file, run, recipe)] == [None] * 4
    return run


def launch(recipe: Path, run: Path, ranks: int = 4, *more: str) -> subprocess.Popen[str]:
    words = ["train", str(recipe), "--run", str(run), "--device", "cpu", "--ranks", str(ranks), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "viaduct", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def processes_of(run: Path) -> dict[int, int]:
    """Rank -> process, of those that train in this directory; -1 is the one that started them."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            variables = dict(line.partition(b"=")[::2] for line in (folder / "environ").read_bytes().split(b"\0"))
        except OSError:
            continue
        if str(run).encode() in words:
            found[int(variables.get(b"RANK", b"-1"))] = int(folder.name)
    return found


def wait_for(run: Path, step: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 600
    while RunDir(run).read_reached_step() < step:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, f"step {step} was not reached"
        time.sleep(0.005)


def run_with_kills(recipe: Path, run: Path, moments: list[tuple[int, int]]) -> str:
    """A run whose ranks are killed, each when a step is reached; what was said meanwhile."""
    process = launch(recipe, run)
    for step, rank in moments:
        wait_for(run, step, process)
        before = processes_of(run)
        os.kill(before[rank], signal.SIGKILL)
        until = time.monotonic() + 600
        while before.keys() & set(range(4)) and any(alive(before[number]) for number in range(4)):
            assert time.monotonic() < until, "the others did not stop within ten minutes"
            time.sleep(0.05)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert processes_of(run) == {}, "processes are left behind"
    return errors


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_equal_runs(run: Path, undisturbed: Path, errors: str) -> None:
    ours, theirs = RunDir(run).read_summary(), RunDir(undisturbed).read_summary()
    assert ours is not None
    assert theirs is not None
    assert ours["steps"] == theirs["steps"] == STEPS
    assert (run / "model.safetensors").read_bytes() == (undisturbed / "model.safetensors").read_bytes()
    # Each step has the samples that it has in the undisturbed run, once for each time that it was done.
    wanted = samples(undisturbed)
    assert all(set(images) == set(wanted[step]) for step, images in samples(run).items())
    assert samples(run).keys() == wanted.keys()
    twice = [step + 1 for step, images in samples(run).items() if len(images) > 32]
    restarts = RunDir(run).read_restarts()
    named = [step for restart in restarts for step in range(restart["first"], restart["last"] + 1)]
    assert set(named) <= set(twice)
    assert len(set(twice) - set(named)) <= len(restarts), "a step that was begun and not ended may be done again"
    assert ours["redone_steps"] == len(named)
    for restart in restarts:
        assert (
            f"teps {restart['first']}-{restart['last']} were done" in errors
            or f"tep {restart['first']} was done" in errors
        )


def test_ranks_killed_twice_change_nothing(recipe: Path, undisturbed: Path, tmp_path: Path) -> None:
    errors = run_with_kills(recipe, tmp_path / "run", [(24, 2), (87, 0)])
    assert_equal_runs(tmp_path / "run", undisturbed, errors)
    restarts = RunDir(tmp_path / "run").read_restarts()
    assert [restart["step"] for restart in restarts] == [21, 84]
    assert "Restarts" in (tmp_path / "run" / "report.html").read_text()
    text = (tmp_path / "run" / "log.txt").read_text()
    assert text.count("done twice") == 2


@pytest.mark.parametrize("seed", range(5))
def test_ten_random_kills_change_nothing(seed: int, recipe: Path, undisturbed: Path, tmp_path: Path) -> None:
    rng = random.Random(seed)
    steps = sorted(rng.sample(range(1, STEPS - 10), 2))
    errors = run_with_kills(recipe, tmp_path / "run", [(step, rng.randrange(4)) for step in steps])
    assert_equal_runs(tmp_path / "run", undisturbed, errors)


def test_ctrl_c_ends_all_ranks_with_one_checkpoint_and_another_number_continues(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = launch(recipe, run, 2)
    wait_for(run, 20, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert processes_of(run) == {}
    stopped = int(errors.split("Stopped after step ")[1].split()[0])
    assert (run / "checkpoints" / f"step-{stopped}").is_dir()
    again = launch(recipe, run, 3)
    _, errors = again.communicate(timeout=600)
    assert again.returncode == 0, errors
    assert f"step-{stopped}" in errors
    assert "done twice" not in errors
    assert RunDir(run).read_restarts() == []
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "log"][-1] == STEPS
    assert sorted(samples(run)) == list(range(STEPS))
    assert all(len(images) == 32 for images in samples(run).values())


def test_sigterm_to_one_rank_stops_all_for_good(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = launch(recipe, run, 2)
    wait_for(run, 5, process)
    os.kill(processes_of(run)[1], signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 143, errors
    assert processes_of(run) == {}
    assert "no rank is started again" in errors
    stopped = int(errors.split("Stopped after step ")[1].split()[0])
    assert (run / "checkpoints" / f"step-{stopped}").is_dir()


def test_a_mistake_is_reported_once_and_not_tried_again(recipe: Path, tmp_path: Path) -> None:
    process = launch(recipe, tmp_path / "run", 2, "--accumulate", "32")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2
    assert errors.count("leaves some of 2 ranks without an image") >= 1
    assert "starting all ranks again" not in errors
    assert not (tmp_path / "run").exists()

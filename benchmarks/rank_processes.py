"""Train a recipe on one or several ranks of this machine over gloo, each in a separate process with one thread."""

from __future__ import annotations

import multiprocessing
import os
import socket
from pathlib import Path

import torch

from viaduct.recipes import LoadedRecipe, Recipe
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir
from viaduct.training.session import run_training


def train_on_ranks(recipe: Recipe, ranks: int, folder: Path, seconds: float) -> RunDir:
    """Train on the CPU and return the run, `folder/run`; exit with the output of the ranks if one fails or hangs."""
    port = find_free_port()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=run_rank, args=(rank, ranks, port, recipe, folder)) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds)
        worker.kill()
    if any(worker.exitcode != 0 for worker in workers):
        outputs = "".join(path.read_text()[-3000:] for path in sorted(folder.glob("output*.txt")))
        raise SystemExit(f"a run on {ranks} ranks failed:\n{outputs}")
    return RunDir(folder / "run")


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_rank(rank: int, ranks: int, port: int, recipe: Recipe, folder: Path) -> None:
    """Train as one rank; its stdout and stderr go to a file."""
    torch.set_num_threads(1)
    output = os.open(folder / f"output{rank}.txt", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(output, stream)
    if ranks > 1:
        environment = {
            "RANK": rank,
            "WORLD_SIZE": ranks,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        os.environ.update({name: str(value) for name, value in environment.items()})
    loaded = LoadedRecipe("recipe", recipe, "A recipe.", None)
    run_training(TrainingRequest(loaded, RunDir(folder / "run"), None, "cpu", "never", "a benchmark"))

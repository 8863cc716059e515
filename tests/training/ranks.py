"""Real ranks for tests: processes with torchrun's variables, forked from one that has imported torch already."""

from __future__ import annotations

import os
import pickle
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from forked_viaduct import CONTEXT

MUTE = "it did not answer"
PATIENCE = 600.0  # seconds: on a busy machine ranks need many times as long as alone


@dataclass
class RankResult:
    """Result of one rank."""

    value: Any  # what its work returned
    error: str | None  # the error that it raised, in words
    is_silent: bool  # another rank prints the error
    output: str  # all that it wrote to stdout and stderr
    exit_code: int | None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_on_ranks(
    ranks: int, work: Callable[..., Any], *arguments: Any, silent: tuple[int, ...] = ()
) -> list[RankResult]:
    """Run the work on each of `ranks` new ranks, end them all, and return their results in order.

    The ranks in `silent` are not waited for.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(rank)) for rank in range(ranks)]
        pipes = [CONTEXT.Pipe(duplex=False) for _ in range(ranks)]
        processes = [
            CONTEXT.Process(target=run_rank, args=(rank, ranks, port, logs[rank], pipes[rank][1], work, arguments))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for _, far in pipes:
            far.close()
        try:
            answers = [receive_answer(near, 0 if rank in silent else PATIENCE) for rank, (near, _) in enumerate(pipes)]
            for process, answer in zip(processes, answers, strict=True):
                process.join(0 if answer[1] == MUTE else PATIENCE)
        finally:
            for process in processes:
                process.kill()
                process.join()
        printed = [log.read_text() if log.exists() else "" for log in logs]
    return [
        RankResult(*answer, output, process.exitcode)
        for answer, output, process in zip(answers, printed, processes, strict=True)
    ]


def receive_answer(pipe: Connection, seconds: float) -> tuple[Any, str | None, bool]:
    try:
        if pipe.poll(seconds):
            answer: tuple[Any, str | None, bool] = pickle.loads(pipe.recv_bytes())
            return answer
    except EOFError:
        return None, "it ended without a word", False
    return None, MUTE, False


def run_rank(
    rank: int,
    ranks: int,
    port: int,
    log: Path,
    pipe: Connection,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    import torch

    from viaduct.errors import ViaductError

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)
    environment = {
        "RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": rank,
        "LOCAL_WORLD_SIZE": ranks,
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in environment.items()} | {"MASTER_ADDR": "127.0.0.1"})
    try:
        pipe.send_bytes(pickle.dumps((work(*arguments), None, False)))
    except ViaductError as error:
        pipe.send_bytes(pickle.dumps((None, f"{type(error).__name__}: {error}", error.is_silent)))
        time.sleep(0.2)  # so that the other ranks read the error, not a closed connection

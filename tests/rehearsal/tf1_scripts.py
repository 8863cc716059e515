"""Runs scripts on the TensorFlow 1 stage, each in a process that is forked from one that has imported TensorFlow."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="pip install 'viaduct[tf]' to rehearse TensorFlow 1 scripts"
)
SOURCE = Path(__file__).parents[2] / "src"


@dataclass
class CommandResult:
    """Output of a script, and what the stage recorded (`warm_tensorflow.perform`)."""

    stdout: str
    stderr: str
    code: int
    stopped: bool
    failure: str
    losses: list[float | None]
    gradients: dict[str, Any]  # of the first step, as lists
    variables: dict[str, Any]  # at the end, as lists
    met_limits: list[tuple[str, int | None, str]]  # name, line, what the script did

    def parse_last_line(self) -> dict[str, Any]:
        """Return the script's last line, which is JSON."""
        found: dict[str, Any] = json.loads(self.stdout.strip().splitlines()[-1])
        return found


class Running:
    """A script that runs in a fork of the process that has imported TensorFlow."""

    def __init__(self, request: dict[str, Any]) -> None:
        server = start_warm_process()
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps(request), file=server.stdin, flush=True)
        self.pid = int(server.stdout.readline())

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.is_alive():
            assert time.monotonic() < end, f"it did not end within {seconds} s"
            time.sleep(0.01)

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
            self.wait(300)


@functools.cache
def start_warm_process() -> subprocess.Popen[str]:
    """Start the process that imports TensorFlow; it ends when its stdin ends, with the process that runs the tests."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("warm_tensorflow.py"))]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def begin_script(
    on: str, script: Path, steps: int | None, seed: int | None, arguments: list[str], more: dict[str, str]
) -> tuple[Running, Path]:
    """Start a script; return it and the path of its answer.

    Output goes into files: with a pipe, a rank that waits for its reader would keep the others waiting.
    """
    answer = script.with_name(f"{script.stem}.{more.get('RANK_ID', '0')}.answer.json")
    answer.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD", "LOCAL"))}
    environment |= {"PYTHONPATH": str(SOURCE), "TF_CPP_MIN_LOG_LEVEL": "3", "JOB_ID": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"VIADUCT_REHEARSAL_PROJECT": str(script.parent), **more}
    request = {
        "arguments": [on, steps, seed, str(answer), str(script), *arguments],
        "environment": environment,
        "folder": str(script.parent),
        "stdout": str(answer.with_suffix(".stdout")),
        "stderr": str(answer.with_suffix(".stderr")),
    }
    return Running(request), answer


def finish_script(process: Running, answer: Path) -> CommandResult:
    try:
        process.wait(600)
    finally:
        process.kill()
    stdout, stderr = (answer.with_suffix(suffix).read_text() for suffix in (".stdout", ".stderr"))
    assert answer.exists(), stderr[-4000:]
    found = json.loads(answer.read_text())
    found["met_limits"] = [tuple(limit) for limit in found["met_limits"]]
    return CommandResult(stdout=stdout, stderr=stderr, **found)


def rehearse_script(
    on: str,
    script: Path,
    steps: int | None = None,
    seed: int | None = 7,
    arguments: list[str] | None = None,
    **more: str,
) -> CommandResult:
    return finish_script(*begin_script(on, script, steps, seed, arguments or [], more))


def rehearse_ranks(
    on: str, script: Path, ranks: int, steps: int | None = None, seed: int | None = 7, **more: str
) -> list[CommandResult]:
    """Run a script as several ranks, and return their answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"RANK_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more}
    started = [begin_script(on, script, steps, seed, [], {**common, "RANK_ID": str(rank)}) for rank in range(ranks)]
    try:
        return [finish_script(*server) for server in started]
    finally:
        for process, _ in started:
            process.kill()


def line_of(script: Path, mark: str) -> int:
    """Return the number of the line that ends in `# mark`."""
    return next(n for n, line in enumerate(script.read_text().splitlines(), 1) if line.rstrip().endswith(f"# {mark}"))

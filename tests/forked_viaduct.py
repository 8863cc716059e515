"""Run `viaduct …` in a separate process, which is forked from one that has already imported torch.

A new interpreter that trains two steps needs 3.3 s, a forked one 0.3 s: the remaining time is spent on imports. Tests
of imports and of the end of the interpreter cannot use a forked process; they start `python -m viaduct`.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The command line sets this, too (cli.py): torch then loads no plug-in of a vendor.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("viaduct.training.session", "viaduct.verbs.train", "viaduct.verbs.data", "typer._adapters"),
        *("torch.profiler", "torch._dynamo"),  # which compiling imports: 1.1 s
        *("viaduct.verbs.carry", "viaduct.carrying.report", "viaduct.rehearsal.child", "viaduct.migration.run"),
    ]
)


class Command:
    """A started command, with the part of the interface of `subprocess.Popen` that tests use."""

    def __init__(self, folder: Path, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.out, self.stderr = folder / "stdout", folder / "stderr"
        for file in (self.out, self.stderr):
            file.touch()
        environment = dict(os.environ)
        self.process = CONTEXT.Process(target=run_work, args=(self.out, self.stderr, environment, work, arguments))
        self.process.start()
        assert self.process.pid is not None
        self.pid: int = self.process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code; negative if a signal ended the process, None while it runs."""
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """Wait for the end of the process; return its stdout and stderr."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("viaduct", timeout, stderr=self.stderr.read_bytes())
        return self.out.read_text(), self.stderr.read_text()

    def wait_for(self, found: Callable[[str], bool], seconds: float = 600) -> None:
        """Wait until `found` returns True for the stdout so far; fail if the process ends or the time is over."""
        end = time.monotonic() + seconds
        while True:
            ended = self.process.exitcode is not None or time.monotonic() > end
            if found(self.out.read_text()):
                return
            assert not ended, f"the expected output did not come: {self.stderr.read_text()}"
            time.sleep(0.01)


def run_work(
    out: Path, stderr: Path, environment: Mapping[str, str], work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    import torch

    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it is computed anew, from the TMPDIR of this environment
    multiprocessing.set_start_method(None, force=True)  # not forkserver: workers would import torch again
    for stream, file in ((1, out), (2, stderr)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), stream)
    torch.set_num_threads(1)
    try:
        work(*arguments)
    finally:
        ctypes.CDLL(None).fflush(None)  # output of C libraries, which a forked process does not flush at its end


def run_viaduct_main(words: list[str], cwd: Path | None, more: Mapping[str, str]) -> None:
    os.environ.update({"OMP_NUM_THREADS": "1", "COLUMNS": "200", **more})
    if cwd:
        os.chdir(cwd)
    sys.argv = ["viaduct", *words]
    runpy.run_module("viaduct", run_name="__main__", alter_sys=True)


def execute(code: str) -> None:
    exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})


@contextmanager
def start_command(work: Callable[..., None], *arguments: Any) -> Iterator[Command]:
    """Run a function in a forked process, which is killed at the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        command = Command(Path(folder), work, arguments)
        try:
            yield command
        finally:
            command.kill()
            command.process.join()


@contextmanager
def start_viaduct(*words: str | Path, cwd: Path | None = None, **environment: str) -> Iterator[Command]:
    """Start `viaduct` with these arguments; it is killed at the end of the block."""
    with start_command(run_viaduct_main, [str(argument) for argument in words], cwd, environment) as command:
        yield command


def viaduct(*words: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `viaduct` with these arguments to its end."""
    with start_viaduct(*words, cwd=cwd, **environment) as command:
        out, stderr = command.communicate()
        assert command.returncode is not None
        return subprocess.CompletedProcess(["viaduct", *map(str, words)], command.returncode, out, stderr)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a forked process, in which torch is imported and has not been used."""
    with start_command(execute, code) as command:
        out, stderr = command.communicate()
        assert command.returncode is not None
        return subprocess.CompletedProcess(["python", "-c", code], command.returncode, out, stderr)

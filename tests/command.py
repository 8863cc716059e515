"""`viaduct …` in a process of its own, forked from one that has imported torch already.

A process that trains two steps spends nine tenths of its time on imports: 3.3 s, and 0.3 s when they are done. What
it cannot show is how imports go and how an interpreter ends; tests of these start a Python of their own.
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

# No plug-in of a vendor is loaded with torch: as the command line has it (cli.py).
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
    """A command that has been started, with as much of `subprocess.Popen` as tests ask for."""

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
        """Negative where a signal has ended it."""
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """Wait for its end; what it has said on both streams."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("viaduct", timeout, stderr=self.stderr.read_bytes())
        return self.out.read_text(), self.stderr.read_text()

    def wait_for(self, found: Callable[[str], bool], seconds: float = 600) -> None:
        """Until something is found in what it prints."""
        end = time.monotonic() + seconds
        while True:
            ended = self.process.exitcode is not None or time.monotonic() > end
            if found(self.out.read_text()):
                return
            assert not ended, f"it never came: {self.stderr.read_text()}"
            time.sleep(0.01)


def run_work(
    out: Path, stderr: Path, environment: Mapping[str, str], work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    import torch

    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # the environment has its say
    multiprocessing.set_start_method(None, force=True)  # ours is not the command's: its workers would import anew
    for stream, file in ((1, out), (2, stderr)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), stream)
    torch.set_num_threads(1)
    try:
        work(*arguments)
    finally:
        ctypes.CDLL(None).fflush(None)  # what C libraries have printed: a forked process ends without it


def be_viaduct(words: list[str], cwd: Path | None, more: Mapping[str, str]) -> None:
    os.environ.update({"OMP_NUM_THREADS": "1", "COLUMNS": "200", **more})
    if cwd:
        os.chdir(cwd)
    sys.argv = ["viaduct", *words]
    runpy.run_module("viaduct", run_name="__main__", alter_sys=True)


def execute(code: str) -> None:
    exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})


@contextmanager
def start_command(work: Callable[..., None], *arguments: Any) -> Iterator[Command]:
    """Some work in a process of its own; it does not outlive the block."""
    with tempfile.TemporaryDirectory() as folder:
        command = Command(Path(folder), work, arguments)
        try:
            yield command
        finally:
            command.kill()
            command.process.join()


@contextmanager
def begun(*words: str | Path, cwd: Path | None = None, **environment: str) -> Iterator[Command]:
    """`viaduct` with these words, while it runs."""
    with start_command(be_viaduct, [str(argument) for argument in words], cwd, environment) as command:
        yield command


def viaduct(*words: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`viaduct` with these words, to its end."""
    with begun(*words, cwd=cwd, **environment) as command:
        out, stderr = command.communicate()
        assert command.returncode is not None
        return subprocess.CompletedProcess(["viaduct", *map(str, words)], command.returncode, out, stderr)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Some code, in a process where torch is imported and has done nothing yet."""
    with start_command(execute, code) as command:
        out, stderr = command.communicate()
        assert command.returncode is not None
        return subprocess.CompletedProcess(["python", "-c", code], command.returncode, out, stderr)

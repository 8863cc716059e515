"""Start the measuring process (request_server.py), send it requests with a time limit, restart it after a failure."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from viaduct.errors import ViaductError
from viaduct.signals import name_signal

POLL_S = 0.2  # interval between checks of the time limit and of signals


class Interrupted(Exception):
    """Raised if a signal has interrupted the tuner."""


class WorkerFailed(Exception):
    """Raised if the process ended, or did not answer a request in time; the message says how it ended."""


class Worker:
    """A process that answers requests one after the other."""

    def __init__(self, command: Sequence[str], is_interrupted: Callable[[], bool] = lambda: False) -> None:
        self.command, self.is_interrupted = list(command), is_interrupted
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0  # how often the process was started

    def send_request(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer to a request; raise WorkerFailed without an answer, ViaductError if it was refused."""
        process = self.start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            raise WorkerFailed(self.describe_end()) from None
        answer = json.loads(self.wait_for_line(process, seconds))
        if "refused" in answer:
            raise ViaductError(answer["refused"], *answer["hints"])
        return dict(answer)

    def start(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            self.starts += 1
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        return self.process

    def wait_for_line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """Return the process's next line; raise WorkerFailed after `seconds`, Interrupted after a signal."""
        assert process.stdout is not None
        descriptor, collected, end = process.stdout.fileno(), b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if self.is_interrupted():
                    self.stop()
                    raise Interrupted
                if selector.select(POLL_S):
                    chunk = os.read(descriptor, 1 << 16)
                    if not chunk:
                        raise WorkerFailed(self.describe_end())
                    collected += chunk
                    if collected.endswith(b"\n"):
                        return collected
                elif time.monotonic() > end:
                    self.stop()
                    raise WorkerFailed(f"no answer within {seconds:.0f} s")

    def describe_end(self) -> str:
        """Wait for the end of the process; return its signal or exit code as text."""
        assert self.process is not None
        code = self.process.wait()
        self.close_pipes()
        return f"killed by {name_signal(-code)}" if code < 0 else f"ended with exit code {code}"

    def stop(self) -> None:
        """Kill the process and its children."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.close_pipes()

    def close_pipes(self) -> None:
        assert self.process is not None
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with suppress(OSError):
                pipe.close()
        self.process = None

"""Snippets of TensorFlow 1 code, run in a process that stays: one for each stage, or two for two ranks of it.

A test pays for its own operators only, not for a process. Each snippet has a fresh default graph, `tf`, `np`, `mock`
and the functions of `snippet_server.py`; what it assigns to `answer` is returned, as JSON has it.
"""

from __future__ import annotations

import functools
import json
import os
import select
import socket
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from rehearsal.tf1_scripts import begin_script

SERVER = Path(__file__).with_name("snippet_server.py")
LIMIT_S = 300.0


def evaluate(stage: str, source: str) -> Any:
    """Return the answer of a snippet on a stage: npu, mlu or original."""
    process = stage_process(stage)
    process.send(source)
    return process.receive()


def evaluate_ranks(stage: str, source: str) -> list[Any]:
    """Return the answers of both ranks to a snippet that two ranks run together."""
    processes = two_ranks(stage)
    for process in processes:
        process.send(source)
    return [process.receive() for process in processes]


@functools.cache
def stage_process(stage: str) -> StageProcess:
    return StageProcess(stage, {})


@functools.cache
def two_ranks(stage: str) -> list[StageProcess]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"RANK_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "VIADUCT_COLLECTIVE_TIMEOUT": "60"}
    return [StageProcess(stage, {**common, "RANK_ID": str(rank)}) for rank in range(2)]


class StageProcess:
    """A fork of the warm process that has installed a stage; it ends with the process that runs the tests."""

    def __init__(self, stage: str, environment: dict[str, str]) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="snippets-")
        folder = Path(self.folder.name)
        for name in ("requests", "answers"):
            os.mkfifo(folder / name)
        # Opened for both directions, so that neither end waits for the other's open().
        self.requests, self.answers = (os.open(folder / name, os.O_RDWR) for name in ("requests", "answers"))
        script = folder / "server.py"
        script.write_text(SERVER.read_text())
        self.process, self.answer_file = begin_script(stage, script, None, 7, [stage], environment)
        self.buffer = b""

    def send(self, source: str) -> None:
        data = json.dumps(textwrap.dedent(source)).encode() + b"\n"
        while data:
            data = data[os.write(self.requests, data) :]

    def receive(self) -> Any:
        """Return the next answer; fail with the snippet's traceback, or with the output of a dead process."""
        end = time.monotonic() + LIMIT_S
        while b"\n" not in self.buffer:
            if select.select([self.answers], [], [], 0.5)[0]:
                self.buffer += os.read(self.answers, 1 << 16)
            else:
                assert self.process.is_alive(), self.answer_file.with_suffix(".stderr").read_text()[-4000:]
                assert time.monotonic() < end, f"no answer within {LIMIT_S:.0f} s"
        line, _, self.buffer = self.buffer.partition(b"\n")
        reply = json.loads(line)
        assert "error" not in reply, reply["error"]
        return reply["answer"]

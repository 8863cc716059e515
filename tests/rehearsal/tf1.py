"""Scripts on the TensorFlow 1 stage, each in a process of its own: TensorFlow takes seconds to import, so a process is
asked many things at once."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="pip install 'viaduct[tf]' to rehearse TensorFlow 1 scripts"
)
SOURCE = Path(__file__).parents[2] / "src"
RUNNER = """
import json, sys
from pathlib import Path
from viaduct.rehearsal import limits, tf1_stage
on, steps, seed, answer, script, *arguments = sys.argv[1:]
tf1_stage.install(on, seed=json.loads(seed))
from viaduct.rehearsal.tf1_stage import watch
from viaduct.scripts.runner import load_script, run_script
watched = watch.start(json.loads(steps))
ended = run_script(load_script(script, arguments))
watched.finish()
tf1_stage.finish(watched.stopped)
import numpy as np
def plain(arrays):
    return {name: np.asarray(array).tolist() for name, array in arrays.items()}
Path(answer).write_text(json.dumps({
    "code": ended.code, "stopped": ended.stopped, "failure": ended.failure, "losses": watched.losses,
    "gradients": plain(watched.first_gradients), "variables": plain(watched.last_variables),
    "hits": [[hit.name, hit.place.line if hit.place else None, hit.what] for hit in limits.hits],
}))
"""


@dataclass
class Answer:
    """What came of a script: its own words, and what the stage saw."""

    out: str
    talk: str
    code: int
    stopped: bool
    failure: str
    losses: list[float | None]
    gradients: dict[str, Any]
    variables: dict[str, Any]
    hits: list[tuple[str, int | None, str]]

    def said(self) -> dict[str, Any]:
        """The script's last line, which is JSON."""
        found: dict[str, Any] = json.loads(self.out.strip().splitlines()[-1])
        return found


def begin(
    on: str, script: Path, steps: int | None, seed: int | None, arguments: list[str], more: dict[str, str]
) -> tuple[Any, Path]:
    """Output goes into files: a rank that waits for its reader would keep the others waiting."""
    answer = script.with_name(f"{script.stem}.{more.get('RANK_ID', '0')}.answer.json")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "WORLD", "LOCAL"))}
    environment |= {"PYTHONPATH": str(SOURCE), "TF_CPP_MIN_LOG_LEVEL": "3", "JOB_ID": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"VIADUCT_REHEARSAL_PROJECT": str(script.parent), **more}
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, on, json.dumps(steps), json.dumps(seed), str(answer)]
    with answer.with_suffix(".out").open("w") as out, answer.with_suffix(".talk").open("w") as talk:
        process = subprocess.Popen(
            [*command, str(script), *arguments], stdout=out, stderr=talk, env=environment, cwd=script.parent
        )
    return process, answer


def ended(process: Any, answer: Path) -> Answer:
    try:
        process.wait(timeout=150)
    finally:
        process.kill()
        process.wait()
    out, talk = (answer.with_suffix(suffix).read_text() for suffix in (".out", ".talk"))
    assert answer.exists(), talk[-4000:]
    found = json.loads(answer.read_text())
    found["hits"] = [tuple(hit) for hit in found["hits"]]
    return Answer(out=out, talk=talk, **found)


def rehearsed(
    on: str,
    script: Path,
    steps: int | None = None,
    seed: int | None = 7,
    arguments: list[str] | None = None,
    **more: str,
) -> Answer:
    return ended(*begin(on, script, steps, seed, arguments or [], more))


def ranked(
    on: str, script: Path, ranks: int, steps: int | None = None, seed: int | None = 7, **more: str
) -> list[Answer]:
    """The same script as several ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"RANK_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more}
    started = [begin(on, script, steps, seed, [], {**common, "RANK_ID": str(rank)}) for rank in range(ranks)]
    try:
        return [ended(*one) for one in started]
    finally:
        for process, _ in started:
            process.kill()
            process.wait()


def line_of(script: Path, mark: str) -> int:
    """The line that ends in a mark."""
    return next(n for n, line in enumerate(script.read_text().splitlines(), 1) if line.rstrip().endswith(f"# {mark}"))

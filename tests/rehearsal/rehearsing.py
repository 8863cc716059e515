"""Runs `viaduct rehearse` on scripts that a test writes, and reads the records."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from forked_viaduct import viaduct

TRAINS = """\
import sys, torch

torch.set_num_threads(1)


def train(steps, network=None):
    network = network or torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(steps):
        x = torch.randn(8, 4)
        loss = torch.nn.functional.cross_entropy(network(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


"""


class Rehearsed:
    """Exit code, output, record and summary of a rehearsal."""

    def __init__(self, answer: subprocess.CompletedProcess[str], record: Path) -> None:
        self.code, self.stdout, self.stderr, self.record = answer.returncode, answer.stdout, answer.stderr, record
        path = record / "summary.json"
        self.summary: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def list_met_limits(self) -> set[tuple[str, int]]:
        """Return (limit, line) of every limit that the script met."""
        return {(hit["name"], hit["place"]["line"] if hit["place"] else 0) for hit in self.summary["limits"]}


def rehearse_script(folder: Path, source: str, *arguments: str, **environment: str) -> Rehearsed:
    """Write the script to folder/train.py, and rehearse it by a command that is given in folder/elsewhere."""
    script, here = folder / "train.py", folder / "elsewhere"
    script.write_text(source)
    here.mkdir(exist_ok=True)
    record = folder / "record"
    answer = viaduct("rehearse", script, "--record", record, *arguments, cwd=here, **environment)
    return Rehearsed(answer, record)


def list_planted(source: str) -> set[tuple[str, int]]:
    """Return name and line number of each `# planted: NAME`."""
    lines = enumerate(source.splitlines(), start=1)
    return {(line.partition("# planted: ")[2].strip(), number) for number, line in lines if "# planted: " in line}

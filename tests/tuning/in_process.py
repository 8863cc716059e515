"""A worker without a process: a function gives the times and the failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuning.bank_entries import HERE
from viaduct.search_space import Parameter, Space
from viaduct.tuning.bank import Bank, BankContents, Choice
from viaduct.tuning.signature import Signature
from viaduct.tuning.tuner import Operator, Tuner
from viaduct.tuning.worker_process import WorkerFailed

SPACE = Space([Parameter("tile", (1, 2, 4, 8)), Parameter("fast", (False, True))], default={"tile": 1, "fast": False})


def make_operator(name: str = "op") -> Operator:
    return Operator(Signature.of("conv2d", x=name), (f"layer.{name}",), 1, SPACE)


class FakeWorker:
    """Answers measurements from a function of the configuration.

    The function returns the time relative to the default's, or a failure: "killed …" ends the worker, any other text
    describes wrong values.
    """

    def __init__(self, ratio: Callable[[Choice], float | str]) -> None:
        self.ratio = ratio
        self.asked: list[Choice] = []

    def send_request(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        point = request["candidate"]
        self.asked.append(json.loads(json.dumps(point)))
        ratio = self.ratio(point)
        if isinstance(ratio, str):
            if ratio.startswith("killed"):
                raise WorkerFailed(ratio)
            return {"wrong": ratio}
        incumbent = self.ratio(request["incumbent"])
        assert isinstance(incumbent, float)
        return {
            "us": 100 * ratio,
            "default_us": 100.0,
            "ratio": ratio,
            "spread": 0.01,
            "beats_incumbent": ratio < incumbent,
            "beats_default": ratio < 1.0,
            "turns": 5,
        }


def make_tuner(folder: Path, worker: FakeWorker, repeat: bool = False, built_in: BankContents | None = None) -> Tuner:
    lines: list[str] = []
    shipped = built_in or BankContents(HERE)
    return Tuner(worker, Bank(folder), HERE, shipped, "exhaustive", 1, repeat, lines.append)  # type: ignore[arg-type]

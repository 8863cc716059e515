"""The process that measures: requests as lines of JSON on standard input, answers on the original standard output.

A variant that crashes or hangs ends this process and nothing else; `workers.py` starts the next one. On Linux this
process is killed when the process that started it ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from viaduct.errors import ViaductError

Answer = dict[str, Any]
Handler = Callable[[dict[str, Any]], Answer]
PR_SET_PDEATHSIG = 1


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answer requests until standard input ends; all other output of the process goes to standard error."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(answer(handlers, request)) + "\n")
        answers.flush()


def answer(handlers: Mapping[str, Handler], request: dict[str, Any]) -> Answer:
    """Return the answer to one request; an exception becomes an answer, too."""
    try:
        return handlers[request["do"]](request)
    except ViaductError as error:
        return {"refused": error.what, "hints": list(error.hints)}
    except Exception as error:
        # A variant may fail in any way that a library knows: that is a result of the measurement.
        lines = str(error).strip().splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:200]}"}


def end_with_parent() -> None:
    """Ask the operating system to kill this process when its parent ends: it may hang and read no input."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Measuring:
    """Handlers of the requests about single operators."""

    def __init__(self, device: str, kinds: Mapping[str, Any]) -> None:
        from viaduct.tuning.measuring import Bench

        self.bench = Bench(device, kinds)

    def list_handlers(self) -> dict[str, Handler]:
        return {"measure": self.measure}

    def measure(self, request: dict[str, Any]) -> Answer:
        """Check a candidate's values, then race it against the default and the best so far."""
        from viaduct.tuning.signature import decode_signature

        signature = decode_signature(request["signature"])
        default, candidate, incumbent = request["default"], request["candidate"], request["incumbent"]
        wrong = self.bench.check_values(signature, candidate, default)
        if wrong is not None:
            return {"wrong": wrong}
        points = {"default": default, "candidate": candidate}
        rival = "default"
        if incumbent not in (default, candidate):
            points["incumbent"], rival = incumbent, "incumbent"
        if candidate == default:
            points.pop("candidate")
        decide = ("candidate", rival) if "candidate" in points else ("default", "default")
        race = self.bench.race(
            signature, points, decide, request["fewest"], request["most"], seconds=float(request["seconds"])
        )
        name = decide[0]
        return {
            "us": race.median_us(name),
            "default_us": race.median_us("default"),
            "ratio": race.ratio(name, "default"),
            "spread": race.spread(name),
            "beats_incumbent": race.is_faster(name, rival),
            "beats_default": race.is_faster(name, "default"),
            "turns": len(race.times_us[name]),
            "others": race.others,
        }

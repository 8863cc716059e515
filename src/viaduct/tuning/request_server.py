"""The measuring process: it reads requests as lines of JSON from stdin and answers on stdout.

Output of the variants goes to stderr. A variant that crashes or hangs ends only this process; worker_process.py starts
the next one. On Linux this process is killed when its parent ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from viaduct.errors import ViaductError
from viaduct.tuning.signature import Signature

if TYPE_CHECKING:
    from viaduct.tuning.measuring import VariantTimer

Answer = dict[str, Any]
Handler = Callable[[dict[str, Any]], Answer]
PR_SET_PDEATHSIG = 1  # option of Linux's prctl: send this process a signal when its parent ends


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answer requests until stdin ends; a request's "do" names its handler. All other output goes to stderr."""
    if sys.platform == "linux":  # a process that hangs in a request would not notice the end of stdin
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(answer(handlers, request)) + "\n")
        answers.flush()


def answer(handlers: Mapping[str, Handler], request: dict[str, Any]) -> Answer:
    """Return the answer to one request; an exception becomes an answer too."""
    try:
        return handlers[request["do"]](request)
    except ViaductError as error:
        return {"refused": error.message, "hints": list(error.hints)}
    except Exception as error:
        # A variant may raise any exception; it is the result of the measurement.
        lines = str(error).strip().splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:200]}"}


def measure(timer: VariantTimer, request: dict[str, Any]) -> Answer:
    """Check a candidate's values, then time it in turns with the default and the incumbent, the best point so far.

    The turns end early if the ranking of candidate and incumbent is significant. A candidate with wrong values is
    not timed; the answer then has only the key `wrong`. Otherwise `us`, `ratio` and `spread` are the candidate's
    median time, its ratio to the default's and its spread; `others` is the share of the processors that other
    programs used.
    """
    signature = Signature.decode_json(request["signature"])
    default, candidate, incumbent = request["default"], request["candidate"], request["incumbent"]
    wrong = timer.check_values(signature, candidate, default)
    if wrong is not None:
        return {"wrong": wrong}
    # Equal points are timed once; the default as candidate is compared with itself.
    name = "default" if candidate == default else "candidate"
    rival = "default" if incumbent in (default, candidate) else "incumbent"
    points = {"default": default, name: candidate}
    if rival == "incumbent":
        points["incumbent"] = incumbent
    times = timer.time_in_turns(
        signature, points, (name, rival), request["min_turns"], request["max_turns"], seconds=float(request["seconds"])
    )
    return {
        "us": times.median_us(name),
        "default_us": times.median_us("default"),
        "ratio": times.ratio(name, "default"),
        "spread": times.spread(name),
        "beats_incumbent": times.is_faster(name, rival),
        "beats_default": times.is_faster(name, "default"),
        "turns": len(times.times_us[name]),
        "others": times.other_load,
    }

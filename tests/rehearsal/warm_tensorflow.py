"""Process that imports TensorFlow, and runs each script that is requested on its stdin in a fork.

Importing TensorFlow takes 2.5 s of a core; a test's own work takes a tenth of that. A request is a line of JSON: the
arguments of `perform`, the environment, the folder and the files for both streams. The process prints the number of
the fork, which exists until the script is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any


def serve() -> None:
    import tensorflow as tf
    import tensorflow_estimator.python.estimator.keras_lib  # noqa: F401
    import torch.distributed  # noqa: F401

    for part in (tf.compat.v1.keras, tf.compat.v1.estimator):
        dir(part)
    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            run_request(json.loads(line))
        print(pid, flush=True)


def reap(number: int, frame: Any) -> None:
    """Collect forks that have ended, so that their process numbers are free."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def run_request(request: dict[str, Any]) -> None:
    """Run a script in the fork, and end the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    code = 0
    try:
        perform(*request["arguments"])
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def perform(on: Any, steps: int | None, seed: int | None, answer: str, script: str, *arguments: str) -> None:
    """Run a script on a stage, and write what was recorded to the file `answer`."""
    import numpy as np

    from viaduct.rehearsal import limits, tf1_stage

    tf1_stage.install(on, seed=seed)
    from viaduct.rehearsal.tf1_stage import sessions, watch
    from viaduct.scripts.runner import load_script, run_script

    watched = watch.start_watching(steps)
    ended = run_script(load_script(script, list(arguments)))
    watched.store_last_variables()
    if watched.stop_requested_at is None:
        sessions.report_open_sessions()

    def plain(arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: np.asarray(array).tolist() for name, array in arrays.items()}

    record = {
        "code": ended.code,
        "stopped": ended.stopped,
        "failure": ended.failure,
        "losses": watched.losses,
        "gradients": plain(watched.first_gradients),
        "variables": plain(watched.last_variables),
        "met_limits": [
            [limit.name, limit.place.line if limit.place else None, limit.action] for limit in limits.violations
        ],
    }
    Path(answer).write_text(json.dumps(record))


if __name__ == "__main__":
    serve()

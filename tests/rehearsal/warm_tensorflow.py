"""A process that has TensorFlow imported and has done nothing with it: each line that it reads is a script to run in a
fork of it. Importing takes 2.5 s of a core, what a test asks for a tenth of that.

A line is JSON: the words of `perform`, the environment, the folder and the files for both streams. The answer is the
new process's number; it is gone when the script is over.
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
            begin_script(json.loads(line))
        print(pid, flush=True)


def reap(number: int, frame: Any) -> None:
    """Nobody waits for a script's process: it is gone as soon as it has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def begin_script(asked: dict[str, Any]) -> None:
    """Run in the new process; does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, name in ((1, "out"), (2, "talk")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    code = 0
    try:
        perform(*asked["words"])
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def perform(on: Any, steps: int | None, seed: int | None, answer: str, script: str, *arguments: str) -> None:
    """The script on its stage; what came of it goes into `answer`."""
    import numpy as np

    from viaduct.rehearsal import limits, tf1_stage

    tf1_stage.install(on, seed=seed)
    from viaduct.rehearsal.tf1_stage import watch
    from viaduct.scripts.runner import load_script, run_script

    watched = watch.start_watching(steps)
    ended = run_script(load_script(script, list(arguments)))
    watched.store_last_variables()
    if watched.stop_requested_at is None:
        tf1_stage.report_open_sessions()

    def plain(arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: np.asarray(array).tolist() for name, array in arrays.items()}

    said = {
        "code": ended.code,
        "stopped": ended.stopped,
        "failure": ended.failure,
        "losses": watched.losses,
        "gradients": plain(watched.first_gradients),
        "variables": plain(watched.last_variables),
        "hits": [[hit.name, hit.place.line if hit.place else None, hit.what] for hit in limits.hits],
    }
    Path(answer).write_text(json.dumps(said))


if __name__ == "__main__":
    serve()

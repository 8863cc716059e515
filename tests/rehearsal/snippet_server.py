"""Script of the processes in `snippets.py`: it reads snippets and writes answers, one a line."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from viaduct.rehearsal import limits

FOLDER = Path(__file__).parent


def compute(fetches: Any, feeds: Any = None) -> Any:
    """Initialise all variables and tables, and return what the fetches are in one run."""
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        return session.run(fetches, feeds)


def refusal(call: Callable[[], Any]) -> str | None:
    """Return "Type: message" of what a call raises; None if it raises nothing."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def met(call: Callable[[], Any]) -> str | None:
    """Return the name of the limit that a call is stopped at; None if it meets none."""
    try:
        call()
    except limits.CardRefuses:
        return limits.violations[-1].name
    return None


def to_json(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else np.asarray(value).tolist()


def run_snippet(source: str, number: int) -> Any:
    path = FOLDER / f"snippet_{number}.py"  # a name of its own, because a limit is reported once for each line
    path.write_text(source)
    names = {"tf": tf, "np": np, "mock": mock, "compute": compute, "refusal": refusal, "met": met}
    names |= {"__name__": path.stem, "folder": FOLDER}
    with tf.Graph().as_default():
        exec(compile(source, str(path), "exec"), names)
    return names["answer"]


def serve() -> None:
    if sys.argv[1] == "npu":
        import npu_bridge.npu_init  # noqa: F401  # every session gets the NPU's config
    with (FOLDER / "requests").open() as requests, (FOLDER / "answers").open("w") as answers:
        for number, line in enumerate(iter(requests.readline, "")):
            try:
                reply = json.dumps({"answer": run_snippet(json.loads(line), number)}, default=to_json)
            except BaseException:
                reply = json.dumps({"error": traceback.format_exc()})
            print(reply, file=answers, flush=True)


serve()

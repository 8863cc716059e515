"""Triton's interpreter, in a process of its own: Triton decides at its import whether it interprets."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

Interpret = Callable[..., Any]  # a function and its arguments to the function's result
LONGEST_S = 600


@contextmanager
def start_interpreter() -> Iterator[Interpret]:
    """Start a process whose kernels are interpreted; it calls functions of importable modules."""
    seed = int.from_bytes(os.urandom(2), "big")
    with ProcessPoolExecutor(1, get_context("spawn"), switch_interpreter_on, (seed,)) as process:
        yield lambda work, *inputs, **options: process.submit(work, *inputs, **options).result(LONGEST_S)


def switch_interpreter_on(seed: int) -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    warnings.simplefilter("ignore")
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)

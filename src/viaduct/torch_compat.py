"""Names that torch has added or changed since 2.4, the oldest release that viaduct trains with.

Names are looked for, version numbers are not compared. A comment gives the first release that has a name. Changes that
concern a single place are dealt with there: `cluster/agent.py`, `cluster/rendezvous.py`, `training/distributed.py`.
"""

from __future__ import annotations

import getpass
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

HAS_STANCE = hasattr(torch.compiler, "set_stance")  # 2.6


def find_disable_dynamo() -> Callable[..., Any]:
    """Return torch's own lazy decorator, or the public one, which imports the compiler: a second at start."""
    from torch import _compile

    return getattr(_compile, "_disable_dynamo", None) or torch.compiler.disable


disable_dynamo = find_disable_dynamo()


@contextmanager
def run_eagerly(compiled: Iterable[nn.Module]) -> Iterator[None]:
    """Let modules that `Module.compile` has compiled run as they are written meanwhile."""
    if HAS_STANCE:
        with torch.compiler.set_stance("force_eager"):
            yield
        return
    calls = {module: module._compiled_call_impl for module in compiled}
    try:
        for module in calls:
            module._compiled_call_impl = None
        yield
    finally:
        for module, call in calls.items():
            module._compiled_call_impl = call


@contextmanager
def compile_nothing() -> Iterator[None]:
    """Let torch.compile return what it is given meanwhile, for releases without stances."""
    from torch._dynamo import config

    before = config.disable
    config.disable = True
    try:
        yield
    finally:
        config.disable = before


def allow_recompiles(count: int) -> None:
    """Raise the number of times that one piece of code may be compiled."""
    from torch._dynamo import config

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # up to 2.5
    setattr(config, name, max(getattr(config, name), count))


@contextmanager
def ignore_profiler_cycles() -> Iterator[None]:
    """Hide the warning that torch.profiler (2.11) keeps the events of one cycle only, which is what is wanted here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events at the end of each cycle")
        yield


def default_compile_cache() -> str:
    """Return the folder that torch keeps compiled code in where nobody has chosen one."""
    try:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # not in 2.4
    except ImportError:
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        return os.path.abspath(os.path.join(tempfile.gettempdir(), f"torchinductor_{user}"))
    return os.path.abspath(default_cache_dir())


def record_vector_width() -> None:
    """Write the vector width that is compiled for into torch's settings, which are part of its compile cache's key.

    Without it, code generated for AVX-512 is taken from the cache by a process that compiles for AVX2 and computes
    garbage: a home folder shared by machines with different CPUs is enough (torch 2.4 to 2.15).
    """
    from torch._inductor import config

    try:
        from torch._inductor.cpu_vec_isa import pick_vec_isa
    except ImportError:  # 2.4
        from torch._inductor.codecache import pick_vec_isa  # type: ignore[attr-defined]
    if config.cpp.simdlen is None:
        chosen = pick_vec_isa()
        config.cpp.simdlen = chosen.bit_width() if chosen else 1  # 1: no vectors


def compile_seconds() -> float:
    """Return how long compiling has taken in this process so far."""
    from torch._dynamo import utils

    spent = utils.calculate_time_spent()
    return float(spent.get("entire_frame_compile", 0.0) + spent.get("entire_backward_compile", 0.0))


def read_tf32_switches() -> dict[str, bool]:
    """Return what fp32 numbers may be rounded to TF32 for.

    The new names answer whichever way it was chosen; the old ones raise an error once both were used.
    """
    backends: Any = torch.backends
    if not hasattr(backends.cudnn, "conv"):  # 2.9
        return {"convolutions": backends.cudnn.allow_tf32, "products": backends.cuda.matmul.allow_tf32}
    chosen = {"convolutions": backends.cudnn.conv, "products": backends.cuda.matmul}
    return {name: switch.fp32_precision == "tf32" for name, switch in chosen.items()}


def clip_gradients(parameters: Iterable[nn.Parameter], most: float, norm: torch.Tensor) -> None:
    """Scale gradients whose common norm is known to be at most so long."""
    if hasattr(nn.utils, "clip_grads_with_norm_"):  # 2.6
        nn.utils.clip_grads_with_norm_(parameters, most, norm)
        return
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor.to(parameter.grad.device))

"""Replacements for names that torch has added or changed since 2.4, the oldest supported release.

Names are looked up; version numbers are not compared. A comment such as `# 2.6` gives the first release with a name.
Changes that affect a single file are handled there: `cluster/agent.py`, `cluster/rendezvous.py`,
`training/distributed.py`.
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
from torch import _compile, nn

HAS_STANCE = hasattr(torch.compiler, "set_stance")  # 2.6; the function can make compiled code run eagerly

# Decorator that excludes a function from compilation. Torch's private one is preferred: the public one imports the
# compiler, which takes about a second.
disable_dynamo: Callable[..., Any] = getattr(_compile, "_disable_dynamo", None) or torch.compiler.disable


@contextmanager
def run_eagerly(compiled: Iterable[nn.Module]) -> Iterator[None]:
    """Run modules compiled by `Module.compile` uncompiled within the block; from 2.6 on, all compiled code."""
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
def disable_compilation() -> Iterator[None]:
    """Make torch.compile return its argument within the block, for releases without `set_stance`."""
    from torch._dynamo import config

    before = config.disable
    config.disable = True
    try:
        yield
    finally:
        config.disable = before


def allow_recompiles(count: int) -> None:
    """Raise the limit of recompilations of one function."""
    from torch._dynamo import config

    name = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # the latter up to 2.5
    setattr(config, name, max(getattr(config, name), count))


@contextmanager
def hide_profiler_cycle_warning() -> Iterator[None]:
    """Hide the warning of torch.profiler (2.11) that it keeps the events of one cycle only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events at the end of each cycle")
        yield


def get_default_compile_cache() -> str:
    """Return the default folder of torch's compile cache."""
    try:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # not in 2.4
    except ImportError:
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        return os.path.abspath(os.path.join(tempfile.gettempdir(), f"torchinductor_{user}"))
    return os.path.abspath(default_cache_dir())


def pin_vector_width() -> None:
    """Set the CPU's vector width in torch's settings, which are part of the key of its compile cache.

    Otherwise, in torch 2.4 to 2.15, a machine may load code from a shared cache folder that another machine compiled
    for another vector width, and this code computes wrong results.
    """
    from torch._inductor import config

    try:
        from torch._inductor.cpu_vec_isa import pick_vec_isa
    except ImportError:  # 2.4
        from torch._inductor.codecache import pick_vec_isa  # type: ignore[attr-defined]
    if config.cpp.simdlen is None:
        chosen = pick_vec_isa()
        config.cpp.simdlen = chosen.bit_width() if chosen else 1  # 1: no vectors


def get_compile_seconds() -> float:
    """Return the seconds that compilation has taken in this process."""
    from torch._dynamo import utils

    spent = utils.calculate_time_spent()
    return float(spent.get("entire_frame_compile", 0.0) + spent.get("entire_backward_compile", 0.0))


def read_tf32_switches() -> dict[str, bool]:
    """Return, for convolutions and for matrix products, whether TF32 is allowed.

    The new attributes always have the current setting; the old ones raise an error after a program has used both.
    """
    backends: Any = torch.backends
    if not hasattr(backends.cudnn, "conv"):  # 2.9
        return {"convolutions": backends.cudnn.allow_tf32, "products": backends.cuda.matmul.allow_tf32}
    switches = {"convolutions": backends.cudnn.conv, "products": backends.cuda.matmul}
    return {name: switch.fp32_precision == "tf32" for name, switch in switches.items()}


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float, norm: torch.Tensor) -> None:
    """Scale gradients, whose total norm is `norm`, so that their norm is at most `max_norm`."""
    if hasattr(nn.utils, "clip_grads_with_norm_"):  # 2.6
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        return
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor.to(parameter.grad.device))

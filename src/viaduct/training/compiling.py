"""Compiles a network: whole, or block by block (regional).

A deep network is mostly the same few blocks again and again. Compiled one by one, blocks of the same class and shapes
share their code: ResNet-50 has 17 and needs 9, and compiling takes as long as those. What is fused across the borders
of blocks is lost, which is little. Parts that run on kernels of our own are left as they are.

What was compiled is kept for the next run, in the user's cache folder unless TORCHINDUCTOR_CACHE_DIR says otherwise.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

How = Literal["auto", "regional", "whole", "off"]
CACHE = "TORCHINDUCTOR_CACHE_DIR"
FORMS = 64  # how many different blocks of one class are compiled; torch's own limit, 8, is meant for accidents


class Compilation:
    """A network and how it is called: `run`."""

    def __init__(self, whole: nn.Module, network: nn.Module, how: How, device_graphs: bool) -> None:
        self.whole = whole  # what is called: the network, or what wraps it for several ranks
        self.parts = [] if how in ("whole", "off") else regions(network)
        fused = any(is_fused(module) for module in network.modules())
        if how == "auto" and len(self.parts) < 2 and not fused:
            self.parts = []
        self.regional = bool(self.parts) or how == "regional" or fused
        # Whole, the device's graphs take over what the host does between kernels; for blocks that is a sink's work.
        self.device_graphs = device_graphs and not self.regional and how != "off"
        self._told = how == "off"
        if how != "off":
            keep_compiled()
        self.run: Callable[..., Any] = self.compiled(how)

    def compiled(self, how: How) -> Callable[..., Any]:
        if how == "off":
            return self.whole
        if not self.regional:
            mode = "reduce-overhead" if self.device_graphs else None
            run: Callable[..., Any] = torch.compile(self.whole, mode=mode, dynamic=False)
            return run
        if self.parts:
            allow_forms()
        for part in self.parts:
            part.compile(dynamic=False)
        return self.whole

    @contextmanager
    def eagerly(self) -> Iterator[None]:
        """Meanwhile blocks run as they are written."""
        if not self.parts:
            yield
            return
        with torch.compiler.set_stance("force_eager"):
            yield

    def news(self) -> str | None:
        """Once, after the first step: what was compiled, and how long that took."""
        if self._told:
            return None
        self._told = True
        seconds, forms = spent()
        if not seconds:
            return None
        blocks = f"{len(self.parts)} blocks of the network, {forms} of them different," if self.parts else "the network"
        return f"Compiled {blocks} in {seconds:.1f} s; kept for the next run in {os.environ.get(CACHE, 'nowhere')}"


def regions(network: nn.Module) -> list[nn.Module]:
    """The outermost blocks: classes that are not torch's and occur again, and whatever stands alone beside them."""
    counts = Counter(type(module) for module in network.modules() if is_block(module))

    def repeats(module: nn.Module) -> bool:
        return any(counts[type(part)] > 1 for part in module.modules() if part is not module)

    def visit(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            if counts[type(child)] > 1 or (counts[type(child)] and not repeats(child)):
                yield child
            else:
                yield from visit(child)

    return [part for part in visit(network) if not any(is_fused(module) for module in part.modules())]


def is_block(module: nn.Module) -> bool:
    return not type(module).__module__.startswith("torch.") and any(True for _ in module.children())


def is_fused(module: nn.Module) -> bool:
    """Whether it has a forward pass of its own, beside that of its class."""
    return "forward" in vars(module)


def allow_forms() -> None:
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, FORMS)


def keep_compiled() -> None:
    """In the user's cache folder: torch's own is under /tmp, which is gone after a restart."""
    if CACHE in os.environ:
        return
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "viaduct" / "compiled"
    with suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        if os.access(place, os.W_OK):
            os.environ[CACHE] = str(place)


def spent() -> tuple[float, int]:
    """Seconds that compiling has taken in this process so far, and how many graphs came of it."""
    from torch._dynamo import utils

    return utils.calculate_time_spent().get("total_wall_time", 0.0), utils.counters["stats"]["unique_graphs"]

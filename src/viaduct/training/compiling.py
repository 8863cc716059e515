"""Compiles a network, whole or block by block (regional); decides whether it runs on viaduct's own kernels.

A deep network repeats a few kinds of blocks. Compiled block by block, blocks of the same class and shapes share their
code: ResNet-50 has 17 blocks of 9 kinds, so 9 are compiled. Operators are not fused across the borders of blocks, which
costs little. If the network is compiled by blocks, those that run on viaduct's own kernels are left out.

Compiled code is kept for the next run, in the user's cache folder unless TORCHINDUCTOR_CACHE_DIR names another folder.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from viaduct.errors import BadValue
from viaduct.kernels.fused import is_fused
from viaduct.recipes import Recipe, Thor
from viaduct.torch_compat import (
    allow_recompiles,
    get_compile_seconds,
    get_default_compile_cache,
    pin_vector_width,
    run_eagerly,
)
from viaduct.training.freezing import list_parents, match_patterns

CompileMode = Literal["auto", "regional", "whole", "off"]  # the recipe's field `compile`
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
# Read before torch._dynamo is imported, because that import sets the variable, too.
USERS_CACHE = os.environ.get(CACHE_VARIABLE) if "torch._dynamo" not in sys.modules else None
SLOWER_ON_CPU = "On the CPU compiled steps can be slower than eager ones (docs/speed.md): compare with --mode eager."
MIN_STEPS_TO_COMPILE = 200  # a shorter run would spend more on compiling than it saves
MAX_VARIANTS = 64  # compiled versions of one block class, for different shapes and settings; torch's default is 8


class Compilation:
    """Decides which parts of a network are compiled, and compiles them; the attribute `run` calls the network."""

    def __init__(
        self, wrapped: nn.Module, network: nn.Module, mode: CompileMode, device_graphs: bool, patterns: str = ""
    ) -> None:
        """Compile by `mode`; `wrapped` is the network or, with several ranks, its DistributedDataParallel.

        `patterns` are the recipe's `compile_parts`: names of the parts to compile instead of those that `mode` selects.
        With `device_graphs` torch's compiler may capture device graphs (CUDA graphs).
        """
        self.wrapped = wrapped
        has_own_kernels = any(is_fused(module) for module in network.modules())
        self.parts = choose_parts(network, mode, patterns, has_own_kernels)
        self.outcome: Literal["regional", "whole", "off"]  # what is compiled: blocks, the network, or nothing
        if self.parts:
            self.outcome = "regional"
        else:  # a network with viaduct's own kernels is not compiled whole
            self.outcome = "whole" if mode in ("auto", "whole") and not has_own_kernels else "off"
        # The compiler may use device graphs for a whole network only. With blocks, viaduct itself captures whole steps.
        self.uses_device_graphs = device_graphs and self.outcome == "whole"
        self.is_underway = self.outcome != "off"  # until `describe_compilation` is called after the first step
        if self.outcome != "off":
            set_compile_cache()
            if is_on_cpu(network):
                pin_vector_width()  # the cache may be shared with other machines
        self.run: Callable[..., Any] = self.compile_network()

    def compile_network(self) -> Callable[..., Any]:
        """Compile the network or its parts; return a function that calls the network."""
        if self.outcome == "whole":
            mode = "reduce-overhead" if self.uses_device_graphs else None
            run: Callable[..., Any] = torch.compile(self.wrapped, mode=mode, dynamic=False)
            return run
        if self.parts:
            allow_recompiles(MAX_VARIANTS)
        for part in self.parts:
            part.compile(dynamic=False)
        return self.wrapped

    def run_uncompiled(self) -> AbstractContextManager[None]:
        """Run the compiled parts of the network in eager mode within the `with` block."""
        return run_eagerly(self.parts) if self.parts else nullcontext()

    def describe_compilation(self) -> str | None:
        """Return what was compiled and how long it took; None if nothing was, and after the first call."""
        if not self.is_underway:
            return None
        self.is_underway = False
        from torch._dynamo import utils

        seconds, graphs = get_compile_seconds(), utils.counters["stats"]["unique_graphs"]
        if not seconds:
            return None
        count = len(self.parts)
        blocks = f"{count} blocks of the network as {graphs} different graphs" if count else "the network"
        folder = os.environ.get(CACHE_VARIABLE)
        line = f"Compiled {blocks} in {seconds:.1f} s" + (f"; kept for the next run in {folder}" if folder else "")
        return f"{line}\n{SLOWER_ON_CPU}" if is_on_cpu(self.wrapped) else line


def is_on_cpu(network: nn.Module) -> bool:
    return all(parameter.device.type == "cpu" for parameter in network.parameters())


def find_blocks(network: nn.Module) -> list[nn.Module]:
    """Return the blocks to compile: the outermost ones whose class repeats, and blocks that contain none of these.

    A block is a module with submodules whose class is not one of torch's own, such as nn.Sequential. Blocks that run on
    viaduct's own kernels, or contain modules that do, are left out.
    """
    counts = Counter(
        type(module)
        for module in network.modules()
        if not type(module).__module__.startswith("torch.") and any(True for _ in module.children())
    )

    def contains_repeated(module: nn.Module) -> bool:
        return any(counts[type(part)] > 1 for part in module.modules() if part is not module)

    def visit(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            if counts[type(child)] > 1 or (counts[type(child)] and not contains_repeated(child)):
                yield child
            else:
                yield from visit(child)

    kernel_modules = list_kernel_modules(network)
    return [part for part in visit(network) if id(part) not in kernel_modules]


def list_kernel_modules(network: nn.Module) -> set[int]:
    """Return the ids of the modules that run on viaduct's own kernels, and of all modules in them or around them."""
    inside = {id(part) for module in network.modules() if is_fused(module) for part in module.modules()}
    return {id(module) for module in network.modules() if any(id(part) in inside for part in module.modules())}


def find_named_parts(network: nn.Module, patterns: str) -> list[nn.Module]:
    """Return the outermost parts whose names match the patterns, without those that run on viaduct's own kernels.

    Raise BadValue if no part is left.
    """
    modules = dict(network.named_modules())
    names = match_patterns(patterns, [name for name in modules if name], "--compile-parts")
    outermost = [name for name in modules if name in names and not names & set(list_parents(name))]
    kernel_modules = list_kernel_modules(network)
    parts = [modules[name] for name in outermost if id(modules[name]) not in kernel_modules]
    if not parts:
        message = f"--compile-parts {patterns!r}: these parts run on viaduct's own kernels, which are not compiled."
        raise BadValue(message, "Use --kernels off, or name other parts.")
    return parts


def choose_parts(network: nn.Module, mode: CompileMode, patterns: str, has_own_kernels: bool) -> list[nn.Module]:
    """Return the parts to compile block by block; none if the network is compiled whole or not at all."""
    if mode == "off":
        return []
    if patterns:
        return find_named_parts(network, patterns)
    blocks = find_blocks(network) if mode != "whole" else []
    if mode == "auto" and has_own_kernels:  # the compiler's start-up pays if a class of the other blocks repeats
        return blocks if len(set(map(type, blocks))) < len(blocks) else []
    return [] if mode == "auto" and len(blocks) == 1 else blocks  # a single block: the whole network is compiled


def choose_mode(recipe: Recipe, device: str, ranks: int, observed: bool) -> Literal["eager", "graph"]:
    """Return the recipe's mode, with `auto` resolved to graph if compiling is asked for or known to pay, else to eager.

    `observed`: a callback observes every step.
    """
    if recipe.mode != "auto":
        return recipe.mode
    if recipe.compile == "off" or observed:
        return "eager"
    if recipe.compile != "auto" or recipe.compile_parts:
        return "graph"
    # Compiling is known to pay for named networks, on one NVIDIA card with Triton and a C compiler.
    is_short = 0 < recipe.steps < MIN_STEPS_TO_COMPILE  # steps is 0 if the recipe gives epochs
    is_excluded = is_short or recipe.deterministic or recipe.evaluation.eval_only
    pays = device == "cuda" and ranks == 1 and isinstance(recipe.model, str) and not is_excluded and has_compiler()
    return "graph" if pays else "eager"


def has_compiler() -> bool:
    """Return True if Triton and a C compiler are installed, which torch.compile needs for a card."""
    names = (os.environ.get("CC"), "gcc", "cc", "clang")
    return find_spec("triton") is not None and any(name and shutil.which(name) for name in names)


def uses_own_kernels(recipe: Recipe, compute: str, device: str, observed: bool, mode: str) -> bool:
    """Return True if nothing forbids viaduct's kernels; raise BadValue if `--kernels on` demands them nevertheless.

    `compute` is the precision: fp32, bf16 or fp16. `observed` is True if a callback, such as a dump, observes every
    operator. `mode` is "eager" or "graph".
    """
    if recipe.kernels == "off":
        return False
    obstacles = {
        f"they are for cuda, and this run is on {device}": device != "cuda",
        "they are written in Triton, which is not installed": find_spec("triton") is None,
        f"they compute in bf16 or fp16, and this run in {compute}": compute not in ("bf16", "fp16"),
        "they would update the statistics of frozen batch norms": bool(recipe.init.freeze),
        "THOR observes the convolutions that they replace": isinstance(recipe.optimizer, Thor),
        "a dump or another callback observes the operators that they replace": observed,
        "they cannot be part of a network compiled whole": mode == "graph" and recipe.compile == "whole",
    }
    obstacle = next((reason for reason, applies in obstacles.items() if applies), None)
    if obstacle is not None and recipe.kernels == "on":
        raise BadValue(f"--kernels on: {obstacle}.", "With --kernels auto a run uses viaduct's kernels where it can.")
    return obstacle is None


def describe_unused_compile(recipe: Recipe) -> str | None:
    """Return a line for the user if the recipe's `mode` or `compile` makes --compile(-parts) useless, else None."""
    parts = f"--compile-parts {recipe.compile_parts}" if recipe.compile_parts else ""
    if parts and recipe.compile == "off":
        return f"{parts} has no effect with --compile off."
    if recipe.mode != "eager" or (recipe.compile in ("auto", "off") and not parts):
        return None
    return f"{parts or f'--compile {recipe.compile}'} has no effect in eager mode; --mode graph compiles."


def set_compile_cache() -> None:
    """Let torch keep compiled code in the user's cache folder: torch's default, under /tmp, may be gone after a reboot.

    A folder that the user has named in TORCHINDUCTOR_CACHE_DIR is not changed.
    """
    if CACHE_VARIABLE in os.environ and not is_torch_default(os.environ[CACHE_VARIABLE]):
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "viaduct" / "compiled"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            os.environ[CACHE_VARIABLE] = str(folder)


def is_torch_default(folder: str) -> bool:
    """Return True if the import of torch._dynamo, not the user, has set the variable, to torch's default folder."""
    if folder == USERS_CACHE or "torch._dynamo" not in sys.modules:
        return False
    return folder == get_default_compile_cache()

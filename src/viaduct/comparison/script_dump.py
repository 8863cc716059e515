"""Dumps of chosen steps of a user's script, which is not changed (`viaduct dump`).

A root is an outermost module: one that no other module calls, such as a network or a loss. scripts/network_calls.py
reports its calls.
"""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from viaduct.comparison.capture import DumpPlan
from viaduct.comparison.dump import DumpBase, StepDump, describe_settings
from viaduct.comparison.modules import name_modules, unwrap_module
from viaduct.comparison.naming import ROOT_MODULE
from viaduct.scripts.network_calls import NetworkCalls
from viaduct.scripts.runner import Script, ScriptResult, StopScript, run_script
from viaduct.scripts.steps import OptimizerSteps
from viaduct.torch_compat import HAS_STANCE, disable_compilation

StepBy = Literal["auto", "optimizer", "forward"]


@dataclass
class Observations:
    """What a script has done so far. Calls are observed only while outermost modules are watched."""

    networks: dict[str, None] = field(default_factory=dict)  # ordered set of the classes of the outermost modules
    passes: int = 0  # calls of outermost modules with parameters
    optimizers: int = 0  # number of optimizers that were created
    steps: int = 0  # steps that have ended


class ScriptDump(DumpBase):
    """Dump of one script.

    A step ends with the step of the primary optimizer (the first that steps) or, if there are several, as the next
    forward pass begins. If no optimizer exists when the first outermost module is called, each forward pass of the main
    network, the first one with parameters, ends a step. `step_by` overrides this choice. `run_on`: do not stop the
    script after the last step.
    """

    def __init__(
        self, plan: DumpPlan, folder: Path, script: Script, run_on: bool = False, step_by: StepBy = "auto"
    ) -> None:
        super().__init__(plan, folder)
        self.script, self.run_on, self.step_by = script, run_on, step_by
        self.seen = Observations()
        self.failure: BaseException | None = None  # of writing a step
        self._selected_step: int | None = None  # the current step, if it is to be dumped
        self._prefixes: dict[nn.Module, str] = {}  # by root, see `_choose_prefix`
        self._precision = ""  # dtype of autocast in the dumped step; "" without autocast
        self._watched: set[nn.Module] = set()  # roots whose modules are watched in this step
        self._roots: NetworkCalls | None = None
        self._steps = OptimizerSteps(self, is_relevant=lambda optimizer: self.step_by != "forward")

    def run(self) -> ScriptResult:
        """Run the script and dump the chosen steps."""
        with ExitStack() as stack:
            stack.enter_context(count_optimizers(self.seen))
            stack.enter_context(warnings.catch_warnings())
            # torch.compile warns about hooks that the script did not register.
            warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
            if not HAS_STANCE:  # torch before 2.6 cannot leave compiled code for single steps
                stack.enter_context(disable_compilation())
            stack.callback(self._close)
            stack.enter_context(self._steps)
            ended = run_script(self.script)
        if self.failure is not None:  # the script caught it and continued
            raise self.failure
        return ended

    def _close(self) -> None:
        self._watch_roots(on=False)
        self.discard_current()
        set_eager(on=False)

    def on_step_begin(self, step: int) -> None:
        self._selected_step = step if step in self.plan.steps else None
        self._watched.clear()
        set_eager(on=self._selected_step is not None)
        self._watch_roots(on=self._selected_step is not None or self.step_by == "forward" or not self.seen.passes)
        if step > self.plan.steps.last and not self.run_on:
            raise StopScript

    def _watch_roots(self, *, on: bool) -> None:
        """Start or stop watching the calls of outermost modules with `on_call` and `on_return`."""
        if on and self._roots is None:
            self._roots = NetworkCalls(self.on_call, self.on_return).__enter__()
        elif not on and self._roots is not None:
            self._roots.__exit__()
            self._roots = None

    def on_call(self, module: nn.Module, args: Any) -> None:
        """Handle the call of an outermost module: if the step is dumped, watch its modules and record its inputs."""
        self._steps.end_waiting_step()
        if self.step_by == "auto":
            self.step_by = "optimizer" if self.seen.optimizers else "forward"
        root = unwrap_module(module)
        self.seen.networks.setdefault(type(root).__name__)
        if self._selected_step is None or (self.step_by == "optimizer" and not torch.is_grad_enabled()):
            return
        if self._current is None:
            self._current = StepDump(self.plan, self.folder, self._selected_step, evaluations=self.step_by == "forward")
            self._precision = describe_autocast(root)
        if root not in self._watched:
            self._watched.add(root)
            # Hooks registered now come too late for this call of the outermost module, and if a pass is a step they
            # would also run after its end. So its calls are reported below and in `on_return`.
            self._current.watch(name_modules(root, self._choose_prefix(root)), without=root if root is module else None)
        if root is module:
            self._current.recorder.on_enter(self._choose_prefix(root) or ROOT_MODULE, root, args, {})

    def _choose_prefix(self, root: nn.Module) -> str:
        """Return the prefix of a root's module names: empty for the first root with parameters, else its class.

        From the second root of a class with a prefix on, a number follows.
        """
        if root not in self._prefixes:
            kind, prefixes = type(root).__name__, set(self._prefixes.values())
            number = sum(name.split("_")[0] == kind for name in prefixes)
            is_main = "" not in prefixes and next(root.parameters(), None) is not None
            self._prefixes[root] = "" if is_main else f"{kind}_{number}" if number else kind
        return self._prefixes[root]

    def on_return(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Record the outermost module's output; if a pass of the main network is a step, end the step."""
        root = unwrap_module(module)
        if root is module and root in self._watched and self._current is not None:
            self._current.recorder.on_exit(self._choose_prefix(root) or ROOT_MODULE, root, args, kwargs, output)
        if next(root.parameters(), None) is None:
            return
        self.seen.passes += 1
        if self.step_by == "forward" and self._choose_prefix(root) == "":
            self._steps.advance()
        elif self._selected_step is None:
            self._watch_roots(on=False)

    def await_other_optimizers(self, step: int, optimizer: torch.optim.Optimizer) -> bool:
        if self.seen.optimizers > 1:
            self._watch_roots(on=True)
        return self.seen.optimizers > 1

    def on_step_end(self, step: int) -> None:
        self.seen.steps = step + 1
        if (current := self.take_current()) is None:
            return
        try:
            current.finish(self._describe_settings())
        except BaseException as error:
            self.failure = error
            raise
        self.written.append(step)

    def _describe_settings(self) -> dict[str, str]:
        main = next((root for root, prefix in self._prefixes.items() if prefix == ""), None)
        settings = describe_settings(self.plan, main)
        if self._precision:
            settings["precision"] = self._precision
        return {**settings, "script": self.script.name, "arguments": shlex.join(self.script.arguments)}


def describe_autocast(root: nn.Module) -> str:
    """Return `autocast` and its dtype on a network's device; empty if it is off."""
    first = next(root.parameters(), None)
    kind = first.device.type if first is not None else "cpu"
    return f"autocast {torch.get_autocast_dtype(kind)}".replace("torch.", "") if torch.is_autocast_enabled(kind) else ""


@contextmanager
def count_optimizers(seen: Observations) -> Iterator[None]:
    """Count the optimizers that are created in the block."""
    optimizer_class: Any = torch.optim.Optimizer
    plain = optimizer_class.__init__

    def counting(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.optimizers += 1
        plain(self, *args, **kwargs)

    optimizer_class.__init__ = counting
    try:
        yield
    finally:
        optimizer_class.__init__ = plain


def set_eager(*, on: bool) -> None:
    """Switch compiled functions to eager execution or back: compiled code has no modules to watch."""
    if HAS_STANCE and (on or "torch._dynamo" in sys.modules):
        torch.compiler.set_stance("force_eager" if on else "default")

"""Dumps of a network's tensors in chosen steps, for `viaduct compare`.

    from viaduct.comparison import Dump

    with Dump(model, "dump", steps="0,5,10-12") as dump:
        for images, labels in batches:
            loss = criterion(model(images), labels)
            dump.record("labels", labels)         # optional: a tensor that is neither input nor output of a module
            loss.backward()
            optimizer.step()                      # ends the step; without an optimizer call dump.step()
            optimizer.zero_grad()

The network has hooks during dumped steps only; if its weights have several optimizers, also from the first one's step
to the next forward pass. Unless the network is compiled, a dump changes no number: the losses are bitwise equal with
and without it (on a GPU, if its kernels are deterministic).
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from viaduct import __version__
from viaduct.comparison.capture import Capture, DumpPlan
from viaduct.comparison.dump_options import Level, Mode
from viaduct.comparison.index import INDEX_FILE, Entry, Index
from viaduct.comparison.modules import ModuleRecorder, name_modules, unwrap_module
from viaduct.comparison.naming import is_step_folder, name_step_folder, parse_patterns, parse_steps
from viaduct.comparison.operators import OperatorRecorder
from viaduct.comparison.parameters import ParameterRecorder, iterate_parameters
from viaduct.comparison.records import Role
from viaduct.comparison.taps import TapRecorder, Taps
from viaduct.comparison.writer import Writer
from viaduct.errors import BadRun, BadValue
from viaduct.scripts.steps import OptimizerSteps, Watcher
from viaduct.torch_compat import read_tf32_switches


def make_plan(
    steps: str | int | Iterable[int],
    mode: str = "all",
    only: str | None = None,
    level: str = "module",
    statistics_only: bool = False,
) -> DumpPlan:
    """Return the plan of a dump; raise BadValue for an unknown option."""
    for name, value, known in (("mode", mode, get_args(Mode)), ("level", level, get_args(Level))):
        if value not in known:
            raise BadValue(f"the dump's {name} is {value!r}.", f"There are: {', '.join(known)}.")
    return DumpPlan(parse_steps(steps), mode, parse_patterns(only), level, statistics_only)  # type: ignore[arg-type]


class StepDump:
    """One step that is being dumped. Networks may be added during the step: a script's are found when it calls them.

    `evaluations`: passes without gradients are dumped too. `taps`: of a compiled network, which has no hooks; its
    passes without gradients are not dumped.
    """

    def __init__(
        self,
        plan: DumpPlan,
        folder: Path,
        step: int,
        rank: int = 0,
        ranks: int = 1,
        evaluations: bool = True,
        taps: Taps | None = None,
    ) -> None:
        self.step, self.rank, self.ranks = step, rank, ranks
        step_path = folder / name_step_folder(step)
        self.writer = Writer(step_path / f"rank_{rank}" if ranks > 1 else step_path)
        self.writer.open()
        self.capture = Capture(plan, self.writer)
        self.parameter_recorder = ParameterRecorder(self.capture)
        self.recorder: ModuleRecorder | OperatorRecorder | TapRecorder
        if taps is not None:
            self.recorder = TapRecorder(self.capture, taps)
        elif plan.level == "op":
            self.recorder = OperatorRecorder(self.capture, evaluations)
        else:
            self.recorder = ModuleRecorder(self.capture, evaluations)

    def watch(
        self,
        names: dict[nn.Module, str],
        weights: dict[nn.Module, str] | None = None,
        without: nn.Module | None = None,
    ) -> None:
        """Watch modules, and record their parameters and buffers.

        `weights`: the modules whose parameters the optimizer has, if not these; then parameters are recorded of them,
        buffers of the watched ones. `without`: a module that gets no hooks, since the caller reports its calls
        (`recorder.on_enter` and `on_exit`).
        """
        if weights is None:
            self.parameter_recorder.watch(names)
        else:
            self.parameter_recorder.watch(weights, buffers=False)
            self.parameter_recorder.watch(names, parameters=False)
        self.recorder.watch({module: name for module, name in names.items() if module is not without})

    def record(self, name: str, tensor: Tensor, role: Role, kind: str) -> None:
        """Record a tensor that is neither input nor output of a module."""
        self.recorder.add_recorded(name, tensor)
        if self.capture.plan.selects(name, role):
            self.capture.add(Entry(name, kind, role, index=0, order=self.capture.next_order()), tensor)

    def begin_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the gradients of an optimizer's weights. Until `end_update`, nothing else is recorded."""
        self.recorder.paused = True
        self.parameter_recorder.record(optimizer, "gradient")

    def end_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the updates of the weights."""
        self.parameter_recorder.record(optimizer, "update")
        self.recorder.paused = False

    def finish(self, settings: Mapping[str, str]) -> None:
        """Remove the hooks, wait for the writer and write the index."""
        self.recorder.paused = True  # if a call ends the step, torch still runs the hooks of this call
        self.recorder.close()
        self.writer.wait()
        edges = {op: tuple(producers) for op, producers in self.recorder.edges.items()}
        self.writer.finish(Index(self.step, self.rank, self.ranks, settings, edges, self.capture.finish_entries()))

    def abandon(self) -> None:
        self.recorder.close()
        self.writer.abandon()


class DumpBase(Watcher):
    """Base of `Dump` (one network) and `ScriptDump`. `_current` is the step being dumped, or None.

    `OptimizerSteps` counts the steps, and calls the methods of `Watcher` (scripts/steps.py) as they begin and end.
    """

    def __init__(self, plan: DumpPlan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.written: list[int] = []  # steps
        self._current: StepDump | None = None

    def on_update_begin(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        if self._current is not None:
            self._current.begin_update(optimizer)

    def on_update_end(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        if self._current is not None:
            self._current.end_update(optimizer)

    def take_current(self) -> StepDump | None:
        """Return the step that is being dumped, and set `_current` to None."""
        current, self._current = self._current, None
        return current

    def discard_current(self) -> None:
        if (current := self.take_current()) is not None:
            current.abandon()


class Dump(DumpBase):
    """Dumps chosen steps of a network into `folder`, which is created if it does not exist.

    A step ends with the step of an optimizer that holds weights of the network. Without an optimizer, call `step()`;
    after an optimizer's step this call does nothing. Passes without gradients are dumped until an optimizer has
    stepped; later ones count as evaluations, which are not dumped. With `evaluations` True passes without gradients are
    always dumped, with False never. A folder with steps is refused, unless `force` is set: then these steps stay,
    except those that are dumped again.

    `weights`: the module that holds the optimizer's weights, if it is not `model`. `settings`: further entries of the
    index's settings. `first_step`: number of the first step. `compiled`: the network runs by `wrap_compiled`; its
    passes without gradients are never dumped.
    """

    def __init__(
        self,
        model: nn.Module,
        folder: str | os.PathLike[str],
        steps: str | int | Iterable[int] = "0",
        mode: str = "all",
        only: str | None = None,
        level: str = "module",
        statistics_only: bool = False,
        *,
        weights: nn.Module | None = None,
        settings: Mapping[str, str] | None = None,
        rank: int = 0,
        ranks: int = 1,
        first_step: int = 0,
        evaluations: bool | None = None,
        compiled: bool = False,
        force: bool = False,
    ) -> None:
        if not force:
            require_no_steps(Path(folder), rank, ranks)
        super().__init__(make_plan(steps, mode, only, level, statistics_only), Path(folder))
        self.model, self.weights = unwrap_module(model), unwrap_module(weights or model)
        self.rank, self.ranks = rank, ranks
        self.settings, self.evaluations = dict(settings or {}), evaluations
        self._first_step = first_step
        if compiled and level == "op":
            raise BadValue("a compiled network has fused its operators.", "Dump it at level module, or not compiled.")
        self._taps = Taps(self.model, self.plan) if compiled else None
        self._pass_hooks: list[Any] = []  # they end a step with several optimizers when the next pass begins
        parameter_ids = {id(parameter) for parameter in self.weights.parameters()}
        self._steps = OptimizerSteps(
            self, first_step, lambda optimizer: any(id(p) in parameter_ids for p in iterate_parameters(optimizer))
        )

    def __enter__(self) -> Dump:
        self._steps.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Discard an unfinished step, but write step 0 if a module ran: a single pass needs no call of `step`."""
        self._steps.__exit__()
        current = self._current
        has_run = current is not None and current.recorder.edges  # a module has been called
        if kind is None and self._steps.step == 0 and current is not None and has_run:
            self._write(current)
        self.close()
        if kind is None:
            self._warn()

    def _warn(self) -> None:
        """Warn about patterns that matched no name, or about requested steps that were not reached."""
        if misses := self.plan.explain_no_match():
            warnings.warn(f"Dump recorded nothing: {misses}", stacklevel=3)
        elif missing := self.plan.steps.describe_missing(self.written):
            taken = self._steps.step - self._first_step
            progress = f"{taken} steps were taken, from {self._first_step}" if taken else "no step was taken"
            warnings.warn(f"Dump did not reach step {missing}: {progress}.", stacklevel=3)

    def close(self) -> None:
        """Remove all hooks, and discard a step that is not finished."""
        self._steps.__exit__()
        self._remove_pass_hooks()
        self.discard_current()

    def step(self) -> None:
        """End the current step; the training loop calls it."""
        self._steps.advance_by_hand()

    @property
    def is_recording(self) -> bool:
        return self._current is not None

    def wrap_compiled(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to call instead of the compiled network `plain`, for a dump made with `compiled`.

        In dumped steps it runs the network compiled with taps (taps.py), else `plain`. Passes without gradients always
        run `plain`.
        """

        def run(*args: Any) -> Any:
            is_dumped = self.is_recording and torch.is_grad_enabled()
            return self._taps.run(*args) if is_dumped and self._taps is not None else plain(*args)

        return run

    def record(self, name: str, tensor: Tensor, role: Role = "output", kind: str = "") -> None:
        """Record a tensor that is neither input nor output of a module, such as labels."""
        if self._current is not None:
            self._current.record(name, tensor, role, kind)

    def on_step_begin(self, step: int) -> None:
        if step not in self.plan.steps:
            return
        evaluations = self._steps.primary is None if self.evaluations is None else self.evaluations
        self._current = StepDump(self.plan, self.folder, step, self.rank, self.ranks, evaluations, self._taps)
        weights = name_modules(self.weights) if self.weights is not self.model else None
        self._current.watch(name_modules(self.model), weights)

    def await_other_optimizers(self, step: int, optimizer: torch.optim.Optimizer) -> bool:
        """Return True if other optimizers may step too, since parameters that this one does not hold have gradients.

        The step then ends when the next forward pass begins. For a compiled network always return False.
        """
        used = {id(parameter) for parameter in iterate_parameters(optimizer)}
        has_others = any(p.grad is not None and id(p) not in used for p in self.weights.parameters())
        if has_others and self._taps is None:
            for module, name in name_modules(self.model).items():
                hook = partial(self._on_pass, name)
                self._pass_hooks.append(module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True))
        return bool(self._pass_hooks)

    def _on_pass(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Pre-hook: end the step at the first call after the optimizers' steps, and report this call to the next step.

        The hooks that the next step registers come too late for this call.
        """
        if self._pass_hooks and self._steps.end_waiting_step() and self._current is not None:
            self._current.recorder.on_enter(name, module, args, kwargs)

    def _remove_pass_hooks(self) -> None:
        for handle in self._pass_hooks:
            handle.remove()
        self._pass_hooks.clear()

    def on_step_end(self, step: int) -> None:
        self._remove_pass_hooks()
        if self._current is not None:
            self._write(self._current)

    def _write(self, current: StepDump) -> None:
        self._current = None
        current.finish({**describe_settings(self.plan, self.model, self._taps is not None), **self.settings})
        self.written.append(current.step)


def describe_settings(plan: DumpPlan, model: nn.Module | None, compiled: bool = False) -> dict[str, str]:
    """Return the settings of a dump's index: device, precision, versions and options; "" for what is not known.

    "precision" is the dtype of the first parameter; the caller overrides it for autocast.
    """
    first = next(iter(model.parameters()), None) if model is not None else None
    device = first.device if first is not None else torch.device("cpu")
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        "precision": str(first.dtype).removeprefix("torch.") if first is not None else "",
        "tf32": describe_tf32(device) if device.type == "cuda" else "",
        "mode": "graph" if compiled else "eager",
        "deterministic": "yes" if torch.are_deterministic_algorithms_enabled() else "no",
        "seed": str(torch.initial_seed()),
        "viaduct": __version__,
        "torch": str(torch.__version__),
        "commit": os.environ.get("VIADUCT_COMMIT", ""),
        "level": plan.level,
        "recorded": plan.mode,
        "only": ",".join(plan.only.patterns),
        "statistics_only": "yes" if plan.statistics_only else "no",
    }


def describe_tf32(device: torch.device) -> str:
    """Return the kinds of operators that may compute in TF32, or "no"; cards before capability 8.0 lack it."""
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "no"
    return " and ".join(name for name, allowed in read_tf32_switches().items() if allowed) or "no"


def require_no_steps(folder: Path, rank: int, ranks: int) -> None:
    """Raise BadRun for a folder that holds steps of this rank or of a single process: two runs would count as one."""
    patterns = ["step_*"] if ranks == 1 else [f"step_*/rank_{rank}", f"step_*/{INDEX_FILE}"]
    if steps := sorted(path for pattern in patterns for path in folder.glob(pattern)):
        raise BadRun(
            f"{folder} holds a dump already: {steps[0].relative_to(folder)}.",
            "Choose another folder, remove it, or pass force=True to write into it all the same.",
        )


def clear_dump(folder: Path) -> None:
    """Remove the steps of an earlier dump, and no other files."""
    for path in filter(is_step_folder, list(folder.iterdir())):
        shutil.rmtree(path)

"""Inspection of a PyTorch script, to explain why two runs of it differ. RECORD is the rehearsal's record folder.

    RECORD/observed/rank-0/facts.json     modules, optimizers, loaders …: their settings and the lines that created them
    RECORD/observed/rank-0/forward.npz    networks' inputs in the first step, outputs of modules without submodules

A fact is {"kind": "module", "name": "bn1", "settings": {"eps": 1e-05, …}, "line": ["train.py", 12]}. Only every nth
element of large inputs and outputs is recorded.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.rehearsal import limits
from viaduct.rehearsal.wrapping import wrap

if TYPE_CHECKING:
    import numpy
    import torch
    from torch import nn

FACTS_FILE, FORWARD_FILE = "facts.json", "forward.npz"
MAX_ELEMENTS = 1 << 16  # recorded elements of one tensor
MAX_TENSORS = 4096  # recorded inputs and outputs
MAX_LOADERS = 64  # DataLoaders that are recorded
MAX_SETTING_LENGTH = 8  # of a list or tuple that is recorded as a setting
# Kinds of facts about a run; other kinds are "module", "optimizer" and so on.
RANKS_KIND = "ranks"  # the ranks train together, or alone
IDLE_OPTIMIZER_KIND = "idle"  # an optimizer took no step
LAST_LEARNING_RATE_KIND = "last rate"  # the learning rate with which the next step would begin
_CREATED_AT = "_viaduct_created_at"  # attribute of a module: the line that created it
_locations: dict[int, tuple[str, int]] = {}  # by the id of an object other than a module: the line that created it
_PLAIN = (bool, int, float, str, type(None))  # types of values that are recorded as settings


@dataclass(frozen=True)
class Fact:
    """Settings of one object of a script, or a property of the run."""

    kind: str
    name: str
    settings: dict[str, Any]
    line: tuple[str, int] | None = None  # file and number of the line that created the object


@dataclass
class Inspection:
    """Records facts and outputs of a script.

    Loaders and scalers are recorded when they are created, modules' outputs and optimizers in the first step, modules,
    schedules and last learning rates at the script's end.
    """

    facts: list[Fact] = field(default_factory=list)
    # Inputs and outputs: the module, "input N" or "" for an output, and the array from `thin_tensor`.
    _tensors: list[tuple[Any, str, numpy.ndarray[Any, Any]]] = field(default_factory=list)
    _optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)  # in the order of their numbers
    # Learning rate schedulers; one may be in the list twice, since two wrapped constructors may run for it.
    _schedules: list[Any] = field(default_factory=list)
    together: bool = False  # this rank was in a process group with other ranks
    _is_first_step_over: bool = False
    _handle: Any = None  # of the forward hook

    def start(self) -> None:
        import torch
        from torch.nn.modules.module import register_module_forward_hook
        from torch.utils.data import DataLoader

        wrap_constructor(torch.nn.Module)
        wrap_constructor(torch.optim.Optimizer, lambda optimizer: self._optimizers.append(weakref.ref(optimizer)))
        wrap_constructor(torch.optim.lr_scheduler.LRScheduler, self._schedules.append)
        wrap_constructor(torch.optim.lr_scheduler.ReduceLROnPlateau, self._schedules.append)
        wrap_constructor(torch.amp.GradScaler, self._record_scaler)
        wrap_constructor(DataLoader, self._record_loader)
        self._handle = register_module_forward_hook(self._on_forward)

    def _record_loader(self, loader: Any) -> None:
        number = sum(fact.kind == "loader" for fact in self.facts)
        if number < MAX_LOADERS:
            settings = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
            settings |= {"sampler": type(loader.sampler).__name__, "workers": loader.num_workers}
            self.facts.append(Fact("loader", f"DataLoader {number}", settings, find_creation_line(loader)))

    def _record_scaler(self, scaler: Any) -> None:
        settings = {"enabled": scaler.is_enabled()}
        if scaler.is_enabled():
            settings |= {"init_scale": scaler._init_scale, "growth_interval": scaler._growth_interval}
        number = sum(fact.kind == "scaler" for fact in self.facts)
        name = f"GradScaler {number}" if number else "GradScaler"
        self.facts.append(Fact("scaler", name, settings, find_creation_line(scaler)))

    def record_inputs(self, module: nn.Module, args: Any) -> None:
        """Record the inputs of an outermost module, in the first step and while gradients are on."""
        if self._records_tensors():
            for number, tensor in enumerate(iterate_tensors(args)):
                self._tensors.append((module, f"input {number}", thin_tensor(tensor)))

    @limits.blame_viaduct()
    def _on_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._records_tensors() and not any(True for _ in module.children()):
            for tensor in iterate_tensors(output):
                self._tensors.append((module, "", thin_tensor(tensor)))

    def record_loss(self) -> None:
        """Record the line of the first backward call."""
        if not self._is_first_step_over and not any(fact.kind == "loss" for fact in self.facts):
            self.facts.append(Fact("loss", "loss", {}, limits.find_users_line()))

    def _records_tensors(self) -> bool:
        import torch

        return not self._is_first_step_over and torch.is_grad_enabled() and len(self._tensors) < MAX_TENSORS

    def _number_optimizers(self) -> list[tuple[int, torch.optim.Optimizer]]:
        """Return the optimizers that still exist, with their numbers."""
        optimizers = enumerate(reference() for reference in self._optimizers)
        return [(number, optimizer) for number, optimizer in optimizers if optimizer is not None]

    def finish_step(self, stepped: list[torch.optim.Optimizer]) -> None:
        """At the end of the first step, record the optimizers, `stepped` first; stop recording inputs and outputs."""
        self.together = self.together or is_in_group()
        if self._is_first_step_over:
            return
        self._is_first_step_over = True
        self._handle.remove()
        idle = [created for _, created in self._number_optimizers() if not any(created is other for other in stepped)]
        self._optimizers = [weakref.ref(optimizer) for optimizer in (*stepped, *idle)]
        for number, optimizer in self._number_optimizers():
            for group_number, group in enumerate(optimizer.param_groups):
                settings = {"class": type(optimizer).__name__, **select_plain_values(group)}
                name = f"optimizer {number} group {group_number}"
                self.facts.append(Fact("optimizer", name, settings, find_creation_line(optimizer)))

    def record_network(self, network: nn.Module, wrapper: nn.Module) -> None:
        """Record the class of a network, once for each class, and the class of its wrapper (DDP, …)."""
        name = type(network).__name__
        if not any((fact.kind, fact.name) == ("network", name) for fact in self.facts):
            self.facts.append(Fact("network", name, {"called as": type(wrapper).__name__}, find_creation_line(wrapper)))

    def _list_final_facts(self, stepped: list[torch.optim.Optimizer]) -> Iterator[Fact]:
        """Yield the schedules, the optimizers' last learning rates, and the optimizers that took no step."""
        for number, schedule in enumerate({id(schedule): schedule for schedule in self._schedules}.values()):
            settings = {"class": type(schedule).__name__, **select_plain_values(vars(schedule))}
            if hasattr(schedule, "milestones") and hasattr(schedule.milestones, "elements"):  # MultiStepLR's Counter
                settings["milestones"] = sorted(schedule.milestones.elements())
            yield Fact("schedule", f"{type(schedule).__name__} {number}", settings, find_creation_line(schedule))
        known = [optimizer for _, optimizer in self._number_optimizers()]
        self._optimizers += [weakref.ref(other) for other in stepped if not any(other is listed for listed in known)]
        for number, optimizer in self._number_optimizers():
            if not any(optimizer is other for other in stepped):
                settings = {"class": type(optimizer).__name__}
                yield Fact(IDLE_OPTIMIZER_KIND, f"optimizer {number}", settings, find_creation_line(optimizer))
                continue
            for group_number, group in enumerate(optimizer.param_groups):
                if "lr" in group:
                    settings = {"lr": float(f"{float(group['lr']):.9g}")}  # rounded to nine digits
                    name = f"optimizer {number} group {group_number} at the end"
                    yield Fact(LAST_LEARNING_RATE_KIND, name, settings, find_creation_line(optimizer))

    def write(self, folder: Path, networks: Mapping[str, nn.Module], stepped: list[torch.optim.Optimizer]) -> None:
        """Write facts.json and forward.npz.

        `networks` has each network by the prefix of its modules' names ("1.", or "" for a single network), `stepped`
        the optimizers that took a step.
        """
        from viaduct.rehearsal.observe import save_arrays

        modules = {id(module): module for network in networks.values() for module in network.modules()}
        modules |= {id(module): module for module, _, _ in self._tensors}
        # Modules that no network holds have the name of their class.
        names = {key: type(module).__name__ for key, module in modules.items()}
        for prefix, network in networks.items():
            names |= {id(module): f"{prefix}{name}" for name, module in network.named_modules()}
        for key, module in modules.items():
            settings = {"class": type(module).__name__, **select_plain_values(vars(module))}
            self.facts.append(Fact("module", names[key] or "(network)", settings, find_creation_line(module)))
        self.facts += [*self._list_final_facts(stepped), describe_ranks(self.together)]
        write_facts(folder, self.facts)
        arrays = {}
        for number, (module, name, array) in enumerate(self._tensors):
            label = f"{names[id(module)]} {name}".strip()  # one of the two may be empty
            arrays[f"{number:05d} {label}"] = array
        save_arrays(folder / FORWARD_FILE, arrays)


def describe_ranks(together: bool) -> Fact:
    return Fact(RANKS_KIND, "ranks", {"together": together})


def write_facts(folder: Path, facts: list[Fact]) -> None:
    text = json.dumps([asdict(fact) for fact in facts], ensure_ascii=False)
    (folder / FACTS_FILE).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def wrap_constructor(kind: Any, on_created: Callable[[Any], None] = lambda created: None) -> None:
    """Wrap a constructor so that it stores the user's line that creates an object, and calls `on_created`."""

    @wrap(kind, "__init__")
    def init(plain: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        if find_creation_line(self) is None and (line := limits.find_users_line()) is not None:
            remember_line(self, (line.file, line.line))  # a plain tuple: saving a module saves it, too
        plain(self, *args, **kwargs)
        with limits.blame_viaduct():
            on_created(self)


def find_creation_line(created: Any) -> tuple[str, int] | None:
    """Return the line that created an object; None if unknown."""
    return vars(created).get(_CREATED_AT) or _locations.get(id(created))


def remember_line(created: Any, location: tuple[str, int]) -> None:
    """Store the line that created an object.

    A module stores the line as an attribute, which its copies inherit. The lines of other objects are in `_locations`,
    so that they do not become part of a saved state.
    """
    import torch

    if isinstance(created, torch.nn.Module):
        created.__dict__[_CREATED_AT] = location
    else:
        _locations[id(created)] = location
        weakref.finalize(created, _locations.pop, id(created), None)


def select_plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public values that are numbers, strings, None, or short lists and tuples of these."""
    return {name: value for name, value in values.items() if not name.startswith("_") and is_plain(name, value)}


def is_plain(name: str, value: Any) -> bool:
    """Return True for a value that is compared; `training` is not, since it changes during the run."""
    if isinstance(value, (tuple, list)):
        return len(value) <= MAX_SETTING_LENGTH and all(isinstance(element, _PLAIN) for element in value)
    return isinstance(value, _PLAIN) and name != "training"


def is_in_group() -> bool:
    """Return True inside a process group of several ranks."""
    from torch import distributed

    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def iterate_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the non-empty tensors of nested containers."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.numel():
            yield value
    elif isinstance(value, dict):
        yield from iterate_tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        yield from (tensor for element in value for tensor in iterate_tensors(element))


def thin_tensor(tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
    """Return every nth element of a non-empty tensor, at most MAX_ELEMENTS, as a flat array."""
    from viaduct.rehearsal.observe import as_array

    array = as_array(tensor).reshape(-1)
    stride = -(-array.size // MAX_ELEMENTS)  # rounded up
    return array[::stride].copy()

"""Inspection of a PyTorch script, to explain why two runs of it differ.

    RECORD/observed/rank-0/facts.json     modules, optimizers, loaders …: their settings and the lines that created them
    RECORD/observed/rank-0/forward.npz    networks' inputs in the first step, outputs of modules without submodules

A fact is {"kind": "module", "name": "bn1", "what": {"eps": 1e-05, …}, "at": ["train.py", 12]}. Of large inputs and
outputs every nth element is recorded.
"""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viaduct.rehearsal import limits

if TYPE_CHECKING:
    import numpy
    import torch
    from torch import nn

FACTS_FILE, FORWARD_FILE = "facts.json", "forward.npz"
MAX_ELEMENTS = 1 << 16  # of one tensor, that are recorded
MAX_CALLS = 4096  # recorded inputs and outputs after which no further ones are recorded
MAX_LOADERS = 64  # DataLoaders that are recorded
RANKS_KIND = "ranks"  # kind of the fact that says if ranks train together
IDLE_OPTIMIZER_KIND = "idle"  # kind of the fact about an optimizer that took no step
LAST_LEARNING_RATE_KIND = "last rate"  # kind of the fact about the learning rate with which the next step would begin
_CREATED_AT = "_viaduct_created_at"  # attribute of a module: the line that created it
_locations: dict[int, tuple[str, int]] = {}  # the line that created an object other than a module, by its id
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Fact:
    """One object of a script, or a property of the run: its kind, its settings, and the line that created it."""

    kind: str
    name: str
    what: dict[str, Any]
    at: tuple[str, int] | None = None


@dataclass
class Inspection:
    """Records what explains a difference, at the time when it is known.

    Loaders and scalers are recorded when they are made, modules' outputs and optimizers in the first step, modules,
    schedules and last learning rates at the script's end.
    """

    facts: list[Fact] = field(default_factory=list)
    # Module, "input N" for an input or "" for an output, and the thinned array.
    _calls: list[tuple[Any, str, numpy.ndarray[Any, Any]]] = field(default_factory=list)
    _optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)  # all that were created
    _schedules: list[Any] = field(default_factory=list)  # all learning rate schedulers that were created
    together: bool = False  # this rank has a process group with others
    _over: bool = False  # the first step has ended
    _handle: Any = None  # of the forward hook

    def start(self) -> None:
        """Wrap the constructors and register the forward hook."""
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
            what = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
            what |= {"sampler": type(loader.sampler).__name__, "workers": loader.num_workers}
            self.facts.append(Fact("loader", f"DataLoader {number}", what, creation_line(loader)))

    def _record_scaler(self, scaler: Any) -> None:
        what = {"enabled": scaler.is_enabled()}
        if scaler.is_enabled():
            what |= {"init_scale": scaler._init_scale, "growth_interval": scaler._growth_interval}
        self.facts.append(Fact("scaler", "GradScaler", what, creation_line(scaler)))

    def record_inputs(self, module: nn.Module, args: Any) -> None:
        """Record the inputs of an outermost module, in the first step and while gradients are on."""
        if self._is_active():
            for number, tensor in enumerate(iterate_tensors(args)):
                self._calls.append((module, f"input {number}", thin_tensor(tensor)))

    def _on_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._is_active() and not any(True for _ in module.children()):
            for tensor in iterate_tensors(output):
                self._calls.append((module, "", thin_tensor(tensor)))

    def record_loss(self) -> None:
        """Record the line of the first backward call."""
        if not self._over and not any(fact.kind == "loss" for fact in self.facts):
            location = limits.find_users_line()
            self.facts.append(Fact("loss", "loss", {}, (location.file, location.line) if location else None))

    def _is_active(self) -> bool:
        import torch

        return not self._over and torch.is_grad_enabled() and len(self._calls) < MAX_CALLS

    def _alive(self) -> list[torch.optim.Optimizer]:
        return [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]

    def finish_step(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """At the end of the first step, record all optimizers and stop recording outputs.

        `optimizers` are those that have stepped; they come first.
        """
        self.together = self.together or is_in_group()
        if self._over:
            return
        self._over = True
        self._handle.remove()
        idle = [created for created in self._alive() if not any(created is stepped for stepped in optimizers)]
        for number, optimizer in enumerate([*optimizers, *idle]):
            for group_number, group in enumerate(optimizer.param_groups):
                what = {"class": type(optimizer).__name__, **plain_values(group)}
                name = f"optimizer {number} group {group_number}"
                self.facts.append(Fact("optimizer", name, what, creation_line(optimizer)))

    def record_network(self, network: nn.Module, wrapper: nn.Module) -> None:
        """Record the class of a network, once for each, and of the wrapper (DDP, …) through which it was called."""
        name = type(network).__name__
        if not any((fact.kind, fact.name) == ("network", name) for fact in self.facts):
            self.facts.append(Fact("network", name, {"called as": type(wrapper).__name__}, creation_line(wrapper)))

    def _final_facts(self, stepped: list[torch.optim.Optimizer]) -> Iterator[Fact]:
        """Yield the schedules, the optimizers' last learning rates, and the optimizers that took no step."""
        for number, schedule in enumerate({id(schedule): schedule for schedule in self._schedules}.values()):
            what = {"class": type(schedule).__name__, **plain_values(vars(schedule))}
            if hasattr(schedule, "milestones") and hasattr(schedule.milestones, "elements"):
                what["milestones"] = sorted(schedule.milestones.elements())
            yield Fact("schedule", f"{type(schedule).__name__} {number}", what, creation_line(schedule))
        for number, optimizer in enumerate(stepped):
            for group_number, group in enumerate(optimizer.param_groups):
                if "lr" in group:
                    what = {"lr": float(f"{float(group['lr']):.9g}")}
                    name = f"optimizer {number} group {group_number} at the end"
                    yield Fact(LAST_LEARNING_RATE_KIND, name, what, creation_line(optimizer))
        alive = self._alive()
        for number, optimizer in enumerate(alive, 1):
            if not any(optimizer is other for other in stepped):
                name = f"optimizer {number} of {len(alive)}"
                yield Fact(IDLE_OPTIMIZER_KIND, name, {"class": type(optimizer).__name__}, creation_line(optimizer))

    def write(self, folder: Path, networks: Mapping[str, nn.Module], stepped: list[torch.optim.Optimizer]) -> None:
        """Write facts.json and forward.npz.

        `networks` are keyed by the prefix of their modules' names ("1.", or "" for a single one), `stepped` are the
        optimizers that took a step.
        """
        from viaduct.rehearsal.observe import save_arrays

        names = {
            id(module): f"{name}{inner}" for name, top in networks.items() for inner, module in top.named_modules()
        }
        # Modules that no network holds are called by their class.
        outside = {id(module): type(module).__name__ for module, _, _ in self._calls if id(module) not in names}
        names = {**outside, **names}
        modules = {id(module): module for top in networks.values() for module in top.modules()}
        modules |= {id(module): module for module, _, _ in self._calls}
        for key, module in modules.items():
            what = {"class": type(module).__name__, **plain_values(vars(module))}
            self.facts.append(Fact("module", names[key] or "(network)", what, creation_line(module)))
        self.facts += [*self._final_facts(stepped), describe_ranks(self.together)]
        write_facts(folder, self.facts)
        arrays = (
            (f"{number:05d} {' '.join(filter(None, (names[id(module)], name)))}", array)
            for number, (module, name, array) in enumerate(self._calls)
        )
        save_arrays(folder / FORWARD_FILE, dict(arrays))


def describe_ranks(together: bool) -> Fact:
    """Return the fact that ranks train together or alone."""
    return Fact(RANKS_KIND, "ranks", {"together": together})


def write_facts(folder: Path, facts: list[Fact]) -> None:
    """Write facts.json."""
    text = json.dumps([asdict(fact) for fact in facts], ensure_ascii=False)
    (folder / FACTS_FILE).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def wrap_constructor(kind: Any, on_created: Callable[[Any], None] = lambda created: None) -> None:
    """Wrap a constructor, so that the user's line that creates an object is stored and `on_created` gets the object."""
    plain = kind.__init__

    @functools.wraps(plain)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if creation_line(self) is None and (location := limits.find_users_line()) is not None:
            remember_line(self, (location.file, location.line))
        plain(self, *args, **kwargs)
        on_created(self)

    kind.__init__ = init


def creation_line(created: Any) -> tuple[str, int] | None:
    """Return the line that created an object; None if unknown."""
    return vars(created).get(_CREATED_AT) or _locations.get(id(created))


def remember_line(created: Any, location: tuple[str, int]) -> None:
    """Store the line that created an object.

    A module gets it as an attribute, which its copies inherit. The lines of other objects are stored in `_locations`,
    so that they do not become part of a saved state.
    """
    import torch

    if isinstance(created, torch.nn.Module):
        created.__dict__[_CREATED_AT] = location
    else:
        _locations[id(created)] = location
        weakref.finalize(created, _locations.pop, id(created), None)


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public values that are numbers, strings, None, or short lists and tuples of these."""
    return {name: value for name, value in values.items() if not name.startswith("_") and is_plain(name, value)}


def is_plain(name: str, value: Any) -> bool:
    """Return True for a value that is compared as a fact; `training` is none, since it changes during the run."""
    if isinstance(value, (tuple, list)):
        return len(value) <= 8 and all(isinstance(element, _PLAIN) for element in value)
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
    """Return every nth element of a non-empty tensor, at most ELEMENTS, as a flat array."""
    from viaduct.rehearsal.observe import as_array

    array = as_array(tensor).reshape(-1)
    return array[:: -(-array.size // MAX_ELEMENTS)].copy()

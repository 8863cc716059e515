"""Finds the phases of a user's training script from its calls of torch, and marks them for a collector.

    data       from the end of the step before to the first call of a network with gradients enabled
    forward    from there; the backward pass ends with the last return of autograd before the update
    update     to the return of `optimizer.step()`

A script with several optimizers (a GAN) ends a step with the last of them before the next batch is asked for; without
a DataLoader, with the one that stepped last before the first stepped again. A script without an optimizer ends it where
the next batch is asked for, or the next forward pass begins. An evaluation or a checkpoint between two steps
is marked as an interruption.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from viaduct.profiling import patches
from viaduct.profiling.collector import Collector
from viaduct.profiling.compilations import count_graphs
from viaduct.profiling.network_facts import NetworkFacts, describe_pass, find_used_device, is_capturing
from viaduct.profiling.outer_calls import OuterCalls
from viaduct.scripts.steps import OptimizerSteps, Watcher

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

LONGEST_CYCLE = 100  # updates in which the order of several optimizers is looked for
EVALUATION, CHECKPOINT, SKIPPED = "evaluation", "checkpoint", "skipped update"


class ScriptPhases(Watcher):
    """Marks the phases while it is entered. `on_done` is called when the plan is fulfilled, `on_facts` with the first
    training pass."""

    def __init__(
        self,
        collector: Collector,
        on_done: Callable[[], None],
        on_facts: Callable[[NetworkFacts], None] = lambda facts: None,
    ) -> None:
        self.collector, self._on_done, self._on_facts = collector, on_done, on_facts
        self.facts: NetworkFacts | None = None
        self.notes: list[str] = []
        self.optimizers = self.passes = self.backwards = self.batches = self.updates = 0
        self.skipped_updates = 0
        self.steps_without_optimizer = 0
        self.workers: int | None = None
        self._calls = OuterCalls(self._on_call, self._on_return)
        self._weights: WeakKeyDictionary[nn.Module, torch.Tensor] = WeakKeyDictionary()  # one that is trained
        self._held = ExitStack()
        self._thread: int | None = None
        self._trained: set[int] = set()  # networks that were in training mode in a training pass
        self._is_idle_pass = False  # a pass was made that no backward pass has followed yet
        self._is_ended = False  # an optimizer has stepped; whether the step is over is not known yet
        self._step_passes = self._step_backwards = self._step_batches = 0
        self._cycle: list[Optimizer] = []  # optimizers in the order of their steps
        self._last_optimizer: Optimizer | None = None
        self._is_functional = False  # backward passes come without a call of a network
        self._updates_before_scaler = 0
        self._graphs_before = count_graphs()

    def __enter__(self) -> ScriptPhases:
        hold = self._held.enter_context
        hold(patches.watch_loaders(self._on_batch_asked, self._on_batch, self.notes.append))
        hold(patches.watch_backward(self._on_backward_end))
        hold(patches.watch_saving(self._on_save))
        hold(patches.watch_scaler(self._on_scaler_begin, self._on_scaler_end))
        hold(patches.count_optimizers(self._on_optimizer_made))
        hold(self._calls)
        hold(OptimizerSteps(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    # Data

    def _on_batch_asked(self) -> None:
        if not self._is_here():
            return
        if self._is_ended or (not self.optimizers and self._step_backwards):
            self._close_step()
        if self._is_idle_pass:
            self.collector.mark_interruption(EVALUATION)
            self._is_idle_pass = False

    def _on_batch(self, loader: Any, began_us: float, ended_us: float) -> None:
        if not self._is_here():
            return
        self.collector.mark_loader_wait(began_us, ended_us)
        if not hasattr(loader, "__next__"):
            return
        self.batches += 1
        self._step_batches += 1
        if not self._trained:
            self.workers = getattr(loader, "_num_workers", None)
        if self._is_functional:
            self.collector.mark_forward_start()

    # Forward

    def _on_call(self, module: nn.Module, args: Any) -> None:
        if not self._is_here():
            return
        if not self._is_training_pass(module):
            self._on_idle_pass(module)
            return
        if not self.optimizers and self._step_backwards:
            self._close_step()
        self._thread = self._thread or threading.get_ident()
        self._is_idle_pass = False
        self.passes += 1
        self._step_passes += 1
        if self.facts is None:
            self.collector.set_device(next(module.parameters()).device.type)
        self.collector.mark_forward_start()

    def _is_training_pass(self, module: nn.Module) -> bool:
        """Return True for a pass with gradients, in training mode or of a network that is never in training mode."""
        import torch

        if not torch.is_grad_enabled():
            return False
        weight = self._weights.get(module)
        if weight is None or not weight.requires_grad:
            weight = next((weight for weight in module.parameters() if weight.requires_grad), None)
            if weight is None:
                return False
            self._weights[module] = weight
        return module.training or id(module) not in self._trained

    def _on_idle_pass(self, module: nn.Module) -> None:
        self._is_idle_pass = True
        is_outside = not self._step_passes or self._is_ended  # within a step a pass without gradients is part of it
        if id(module) in self._trained and is_outside:
            if self._is_ended:
                self._close_step()
            self.collector.mark_interruption(EVALUATION)

    def _on_return(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if output is None or not self._is_here() or not self._is_training_pass(module):
            return
        if module.training:
            self._trained.add(id(module))
        if self.facts is None:
            self.facts = describe_pass(module, args, kwargs)
            self._on_facts(self.facts)
            self.collector.watch_modules(module)

    # Backward and update

    def _on_backward_end(self) -> None:
        if not self._is_here():
            return
        self._is_idle_pass = False
        self.backwards += 1
        self._step_backwards += 1
        if not self._step_passes:
            self._is_functional = True
        self._mark_backward_end()

    def _mark_backward_end(self) -> None:
        if self.facts is None:
            self.collector.set_device(find_used_device())
        self.collector.mark_backward_end()

    def on_update_begin(self, step: int, optimizer: Optimizer) -> None:
        if self._is_here() and not self._step_backwards:  # gradients come from elsewhere, or from a closure
            self._mark_backward_end()
        if self._cycle and optimizer is self._cycle[0] and self.optimizers > 1 and not self._step_batches:
            self._learn_last()

    def _learn_last(self) -> None:
        """Learn which optimizer ends a step: the one before the first optimizer steps again."""
        if self._last_optimizer is None:
            self._last_optimizer = self._cycle[-1]
            if self._is_ended:
                self._close_step()

    def on_update_end(self, step: int, optimizer: Optimizer) -> None:
        if not self._is_here():
            return
        self.updates += 1
        self.collector.mark_update_end()
        self._is_ended = True
        if self._last_optimizer is None and len(self._cycle) < LONGEST_CYCLE:
            self._cycle.append(optimizer)
        if self._is_last(optimizer):
            self._close_step()

    def _is_last(self, optimizer: Optimizer) -> bool:
        """Return True if no other optimizer can follow in this step."""
        if self.optimizers <= 1:
            return True
        return not self._step_batches and optimizer is self._last_optimizer

    def _on_scaler_begin(self) -> None:
        self._updates_before_scaler = self.updates

    def _on_scaler_end(self) -> None:
        """End an iteration here whose gradients overflowed: it has no update."""
        if self._is_here() and self.updates == self._updates_before_scaler and self._step_backwards:
            self.skipped_updates += 1
            self.collector.mark_interruption(SKIPPED)
            self._close_step()

    def _on_save(self) -> None:
        if self._is_here():
            if self._is_ended:
                self._close_step()
            self.collector.mark_interruption(CHECKPOINT)

    def _on_optimizer_made(self) -> None:
        self.optimizers += 1

    def _close_step(self) -> None:
        if not self.updates:
            self.steps_without_optimizer += 1
        self._remember_batch()
        self._is_ended = False
        self._step_passes = self._step_backwards = self._step_batches = 0
        self.collector.mark_step_end()
        if self.collector.taken == max(1, self.collector.plan.skip):
            self._calls.narrow()
        if self.collector.done:
            self._on_done()

    def _remember_batch(self) -> None:
        """Record how many passes a step has, where gradients are accumulated over several batches."""
        if self.facts is not None and self._step_batches == self._step_backwards > 1:
            self.facts = self.facts.with_passes(self._step_batches)

    def _is_here(self) -> bool:
        """Return True in the thread that trains, unless it records a graph of the device."""
        if self._thread is not None and self._thread != threading.get_ident():
            return False
        return not is_capturing(self.collector.device)

    # What to say of it

    def describe(self) -> tuple[str, ...]:
        """Return sentences that say how each time point was found."""
        return (*self._describe_start(), *self._describe_backward(), *self._describe_end())

    def _describe_start(self) -> list[str]:
        if self._is_functional:
            start = "the batch arrives" if self.batches else "the step before ends"
            found = f"t1, forward start: no network was called with its weights; it is taken to be when {start}."
        else:
            network = self.facts.network if self.facts is not None else "a network"
            found = f"t1, forward start: the first call of {network} with gradients enabled in a step."
        loader = (
            "Waits are the time in a DataLoader's __iter__ and __next__." if self.batches else "No DataLoader was used."
        )
        return [found, loader]

    def _describe_backward(self) -> list[str]:
        if not self.backwards:
            return ["t2, backward end: autograd was not called; it is taken to be when the optimizer is called."]
        return ["t2, backward end: the last return of torch.autograd before the update."]

    def _describe_end(self) -> list[str]:
        if self.steps_without_optimizer:
            where = "asks for the next batch" if self.batches else "begins the next forward pass"
            return [f"t6, step end: no optimizer of torch.optim steps; a step ends where the script {where}."]
        found = "t6, step end: the return of optimizer.step()"
        if len({id(optimizer) for optimizer in self._cycle}) > 1:
            last = "before the next batch is asked for" if self.batches else "of each round"
            return [f"{found} of the last of several optimizers {last}."]
        return [f"{found}."]

    def describe_absence(self) -> str:
        """Return why no step was found."""
        if not (self.passes or self.backwards or self.optimizers):
            return "it called no network with gradients, made no optimizer and ran no backward pass in this process"
        counts = f"{self.passes} training passes, {self.backwards} backward passes, {self.updates} optimizer steps"
        return f"it made {self.optimizers} optimizers; {counts}"

    def list_notes(self) -> list[str]:
        """Return notes about skipped updates and steps whose passes were not seen."""
        notes = list(self.notes)
        if self.skipped_updates:
            notes.append(f"GradScaler skipped {self.skipped_updates} updates; those steps are left out of the medians.")
        if self.collector.missing_forward and not self._is_functional:
            notes.append(f"in {self.collector.missing_forward} steps no forward pass was seen: they have no data tail.")
        if self.collector.missing_backward:
            notes.append(f"in {self.collector.missing_backward} steps no backward pass was seen.")
        return notes

    @property
    def mode(self) -> str:
        return "graph" if count_graphs() > self._graphs_before else "eager"

"""Find the phases of a user's training script from its calls of torch, and mark them for a collector.

    data                  from the end of the previous step to the first call of a network with gradients enabled
    forward + backward    from that call to the last return of autograd before the update
    update                from that return to the return of `optimizer.step()`

With several optimizers (a GAN) a step ends with the last optimizer that steps before the next batch is requested, or,
without a DataLoader, before the first optimizer steps again. Without an optimizer a step ends when the next batch is
requested, or the next forward pass begins. Evaluations and checkpoints between two steps are marked as interruptions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
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

LONGEST_CYCLE = 100  # largest number of updates that are recorded to find the last of several optimizers
EVALUATION, CHECKPOINT, SKIPPED = "evaluation", "checkpoint", "skipped update"


class ScriptPhases(Watcher):
    """Context manager that marks the phases of a script's steps.

    A training pass is a call of a network that may be followed by a backward pass. `on_facts` is called after the first
    one, when `facts` is known, `on_done` when the collector has taken all steps of its plan.
    """

    def __init__(
        self,
        collector: Collector,
        on_done: Callable[[], None],
        on_facts: Callable[[], None] = lambda: None,
    ) -> None:
        self.collector, self._on_done, self._on_facts = collector, on_done, on_facts
        self.facts: NetworkFacts | None = None
        self.notes: list[str] = []
        # Counts within the run:
        self.optimizers = self.passes = self.backwards = self.batches = self.updates = 0
        self.skipped_updates = self.steps_without_optimizer = 0
        self.workers: int | None = None
        self._calls = OuterCalls(self._on_call, self._on_return)
        self._weights: WeakKeyDictionary[nn.Module, torch.Tensor] = WeakKeyDictionary()  # network -> a trainable weight
        self._patches = ExitStack()
        self._thread: int | None = None
        self._trained: set[int] = set()  # ids of networks that were in training mode in a training pass
        self._has_inference_pass = False  # a network was called without training since the last training pass
        self._has_stepped = False  # an optimizer has stepped, but another one may follow
        self._step_passes = self._step_backwards = self._step_batches = 0  # counts within the current step
        self._cycle: list[Optimizer] = []  # optimizer of each update so far, up to LONGEST_CYCLE updates
        self._last_optimizer: Optimizer | None = None  # the one whose update ends a step, once that is known
        self._is_functional = False  # a backward pass came without a call of a network (torch.func, plain tensors)
        self._updates_before_scaler = 0
        self._graphs_before = count_graphs()

    def __enter__(self) -> ScriptPhases:
        import torch

        enter, call_around = self._patches.enter_context, patches.call_around
        enter(patches.observe_loaders(self._on_batch_requested, self._on_batch, self.notes.append))
        enter(patches.observe_backward(self._on_backward_end))
        enter(call_around(torch, "save", before=self._on_save))
        enter(call_around(torch.amp.GradScaler, "step", self._on_scaler_begin, self._on_scaler_end))
        enter(call_around(torch.optim.Optimizer, "__init__", before=self._on_optimizer_created))
        enter(self._calls)
        enter(OptimizerSteps(self))  # calls on_update_begin and on_update_end
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.close()

    # Data

    def _on_batch_requested(self) -> None:
        """End the step if it is over, and mark an evaluation that ran since the last training pass."""
        if not self._is_training_thread():
            return
        if self._has_stepped or (not self.optimizers and self._step_backwards):
            self._close_step()
        if self._has_inference_pass:
            self.collector.mark_interruption(EVALUATION)
            self._has_inference_pass = False

    def _on_batch(self, loader: Any, began_us: float, ended_us: float) -> None:
        """Add the wait for a batch, or for the start of an epoch, to the step."""
        if not self._is_training_thread():
            return
        self.collector.mark_loader_wait(began_us, ended_us)
        if not hasattr(loader, "__next__"):  # the start of an epoch, without a batch
            return
        self.batches += 1
        self._step_batches += 1
        if not self._trained:  # later loaders may be those of evaluations
            self.workers = getattr(loader, "_num_workers", None)
        if self._is_functional:
            self.collector.mark_forward_start()

    # Forward

    def _on_call(self, module: nn.Module) -> None:
        """Mark the start of the forward pass, or an evaluation."""
        if not self._is_training_thread():
            return
        if not self._is_training_pass(module):
            self._on_inference_pass(module)
            return
        if not self.optimizers and self._step_backwards:
            self._close_step()
        self._thread = self._thread or threading.get_ident()
        self._has_inference_pass = False
        self.passes += 1
        self._step_passes += 1
        if self.facts is None:
            self.collector.set_device(next(module.parameters()).device.type)
        self.collector.mark_forward_start()

    def _is_training_pass(self, module: nn.Module) -> bool:
        """Return True for a pass with gradients of a network that can be trained.

        The network must be in training mode, or it must never have been in training mode.
        """
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

    def _on_inference_pass(self, module: nn.Module) -> None:
        """Mark an evaluation if a trained network is called between steps."""
        self._has_inference_pass = True
        is_between_steps = not self._step_passes or self._has_stepped
        if id(module) in self._trained and is_between_steps:
            if self._has_stepped:
                self._close_step()
            self.collector.mark_interruption(EVALUATION)

    def _on_return(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Record the network of a training pass, and its facts after the first one."""
        if output is None or not self._is_training_thread() or not self._is_training_pass(module):
            return
        if module.training:
            self._trained.add(id(module))
        if self.facts is None:
            self.facts = describe_pass(module, args, kwargs)
            self._on_facts()
            self.collector.add_network(module)

    # Backward and update

    def _on_backward_end(self) -> None:
        if not self._is_training_thread():
            return
        self._has_inference_pass = False
        self.backwards += 1
        self._step_backwards += 1
        if not self._step_passes:
            self._is_functional = True
        self._mark_backward_end()

    def _mark_backward_end(self) -> None:
        """Mark the end of the backward pass; of several marks in a step the last one counts."""
        if self.facts is None:
            self.collector.set_device(find_used_device())
        self.collector.mark_backward_end()

    def on_update_begin(self, step: int, optimizer: Optimizer) -> None:
        if self._is_training_thread() and not self._step_backwards:  # gradients from elsewhere, or from a closure
            self._mark_backward_end()
        if self._cycle and optimizer is self._cycle[0] and self.optimizers > 1 and not self._step_batches:
            self._find_last_optimizer()

    def _find_last_optimizer(self) -> None:
        """Record that the latest optimizer ends a step, because the first optimizer is about to step again."""
        if self._last_optimizer is None:
            self._last_optimizer = self._cycle[-1]
            if self._has_stepped:
                self._close_step()

    def on_update_end(self, step: int, optimizer: Optimizer) -> None:
        """Mark the end of the update, and end the step unless another optimizer may follow."""
        if not self._is_training_thread():
            return
        self.updates += 1
        self.collector.mark_update_end()
        self._has_stepped = True
        if self._last_optimizer is None and len(self._cycle) < LONGEST_CYCLE:
            self._cycle.append(optimizer)
        is_known_last = not self._step_batches and optimizer is self._last_optimizer
        if self.optimizers <= 1 or is_known_last:  # no other optimizer can follow in this step
            self._close_step()

    def _on_scaler_begin(self) -> None:
        self._updates_before_scaler = self.updates

    def _on_scaler_end(self) -> None:
        """End the step if the scaler skipped the update because gradients overflowed."""
        if self._is_training_thread() and self.updates == self._updates_before_scaler and self._step_backwards:
            self.skipped_updates += 1
            self.collector.mark_interruption(SKIPPED)
            self._close_step()

    def _on_save(self) -> None:
        if self._is_training_thread():
            if self._has_stepped:
                self._close_step()
            self.collector.mark_interruption(CHECKPOINT)

    def _on_optimizer_created(self) -> None:
        self.optimizers += 1

    def _close_step(self) -> None:
        """End the step; after the last one of the plan call `on_done`."""
        if not self.updates and not self.skipped_updates:
            self.steps_without_optimizer += 1
        if self.facts is not None and self._step_batches == self._step_backwards > 1:  # gradients are accumulated
            self.facts = replace(self.facts, passes=self._step_batches)
        self._has_stepped = False
        self._step_passes = self._step_backwards = self._step_batches = 0
        self.collector.mark_step_end()
        # After the warm-up, or without one after the first step, all networks have been called.
        if self.collector.ended_steps == max(1, self.collector.plan.skip):
            self._calls.observe_only_called_classes()
        if self.collector.done:
            self._on_done()

    def _is_training_thread(self) -> bool:
        """Return True in the thread of the first training pass, unless it is capturing a graph."""
        if self._thread is not None and self._thread != threading.get_ident():
            return False
        return not is_capturing(self.collector.device)

    # Description

    def describe_time_points(self) -> tuple[str, ...]:
        """Return sentences on how the time points of a step were found."""
        waits = "Waits are the time in a DataLoader's __iter__ and __next__."
        backward = "the last return of torch.autograd before the update."
        if not self.backwards:
            backward = "autograd was not called; the call of the optimizer is used."
        return (
            self._describe_start(),
            waits if self.batches else "No DataLoader was seen.",
            f"t2, backward end: {backward}",
            self._describe_end(),
        )

    def _describe_start(self) -> str:
        if self._is_functional:
            start = "the arrival of the batch" if self.batches else "the end of the previous step"
            return f"t1, forward start: no network was called with its weights; {start} is used."
        network = self.facts.network if self.facts is not None else "a network"
        return f"t1, forward start: the first call of {network} with gradients enabled in a step."

    def _describe_end(self) -> str:
        if self.steps_without_optimizer:
            event = "requests the next batch" if self.batches else "begins the next forward pass"
            return f"t6, step end: no optimizer of torch.optim steps; a step ends when the script {event}."
        sentence = "t6, step end: the return of optimizer.step()"
        if len({id(optimizer) for optimizer in self._cycle}) > 1:
            last = "before the next batch is requested" if self.batches else "of each round"
            return f"{sentence} of the last of several optimizers {last}."
        return f"{sentence}."

    def explain_missing_steps(self) -> str:
        """Return what the script did, as the reason why no step was found."""
        if not (self.passes or self.backwards or self.optimizers):
            return "it called no network with gradients, made no optimizer and ran no backward pass in this process"
        counts = f"{self.passes} training passes, {self.backwards} backward passes, {self.updates} optimizer steps"
        return f"it made {self.optimizers} optimizers; {counts}"

    def list_notes(self) -> list[str]:
        notes = list(self.notes)
        if self.skipped_updates:
            notes.append(f"GradScaler skipped {self.skipped_updates} updates; those steps are left out of the medians.")
        if self.collector.missing_forward and not self._is_functional:
            notes.append(f"in {self.collector.missing_forward} steps no forward pass was seen: their data tail is 0.")
        if self.collector.missing_backward:
            notes.append(
                f"in {self.collector.missing_backward} steps no backward pass was seen: their update tail is 0."
            )
        return notes

    @property
    def mode(self) -> str:
        """The mode of Facts: "graph" if torch.compile has compiled a graph since this object was made."""
        return "graph" if count_graphs() > self._graphs_before else "eager"

"""Detect where the steps of a user's training script begin and end.

- A step ends with `step()` of the primary optimizer: the first one that steps. The update of any other optimizer
  belongs to the step in which it happens.
- If a watcher expects other optimizers after the primary one (`await_other_optimizers`), the step stays open until the
  watcher reports the next forward pass (`end_waiting_step`), so that `primary.step(); second.step()` is one step. In a
  GAN, whose second network runs in between, the second update then belongs to the next step.
- An optimizer that calls another one counts once.
- A GradScaler that finds an overflow does not call the optimizer: such an iteration is part of the next step.
- Without an optimizer no step ends; a watcher may call `advance` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle


class Watcher:
    """Base class of observers of a script's steps; define the methods you need. `step` is the number of the step."""

    def on_step_begin(self, step: int) -> None:
        """Called when the previous step has ended, and once when the detection starts."""

    def on_update_begin(self, step: int, optimizer: Optimizer) -> None:
        """Called before an optimizer's update, with the final gradients."""

    def on_update_end(self, step: int, optimizer: Optimizer) -> None:
        """Called after an optimizer's update."""

    def await_other_optimizers(self, step: int, optimizer: Optimizer) -> bool:
        """Called after the primary optimizer's step; return True if others may follow in the same step.

        A watcher that returns True must call `end_waiting_step` at the next forward pass.
        """
        return False

    def on_step_end(self, step: int) -> None:
        """Called when a step has ended."""


class OptimizerSteps:
    """Context manager that reports steps to a watcher, counted from `first_step`.

    Optimizers for which `is_relevant` returns False are ignored.
    """

    def __init__(
        self, watcher: Watcher, first_step: int = 0, is_relevant: Callable[[Optimizer], bool] = lambda optimizer: True
    ) -> None:
        self.watcher, self.step, self.is_relevant = watcher, first_step, is_relevant
        self.primary: Optimizer | None = None
        self.ended_by_optimizer = False  # True: the primary optimizer has stepped since the last `advance_by_hand`
        self.waiting = False  # True: the primary optimizer has stepped, and others may follow in this step
        self._running: list[Optimizer] = []  # optimizers inside their step(), the outermost first
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> OptimizerSteps:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        pre: Any = self._before_update
        post: Any = self._after_update
        self._handles = [register_optimizer_step_pre_hook(pre), register_optimizer_step_post_hook(post)]
        self.watcher.on_step_begin(self.step)
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        if self.waiting:  # unlike `advance`: no further step begins
            self.waiting = False
            self.watcher.on_step_end(self.step)
            self.step += 1

    def end_waiting_step(self) -> bool:
        """End a step that waits for other optimizers; return True if it did wait. Call it when a forward pass begins.

        A forward pass in an optimizer's closure does not end the step.
        """
        if not self.waiting or self._running:
            return False
        self.advance()
        return True

    def advance(self) -> None:
        """End the step and begin the next one."""
        self.waiting = False
        self.watcher.on_step_end(self.step)
        self.step += 1
        self.watcher.on_step_begin(self.step)

    def advance_by_hand(self) -> None:
        """End the step, unless the primary optimizer has ended one since the last call.

        For steps that the script marks itself (`Dump.step()`), whether it has an optimizer or not.
        """
        by_optimizer, self.ended_by_optimizer = self.ended_by_optimizer, False
        if self.waiting or not by_optimizer:
            self.advance()

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Hook before `step()` of any optimizer."""
        if optimizer in self._running:  # its last step ended in an exception
            del self._running[self._running.index(optimizer) :]
        if optimizer is self.primary:
            self.end_waiting_step()
        self._running.append(optimizer)
        if len(self._running) == 1 and self.is_relevant(optimizer):
            self.watcher.on_update_begin(self.step, optimizer)

    def _after_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Hook after `step()` of any optimizer; it does not run if `step()` raises."""
        if optimizer in self._running:
            del self._running[self._running.index(optimizer) :]
        if self._running or not self.is_relevant(optimizer):
            return
        self.watcher.on_update_end(self.step, optimizer)
        self.primary = self.primary or optimizer
        if optimizer is self.primary:
            self.ended_by_optimizer = True
            self.waiting = self.watcher.await_other_optimizers(self.step, optimizer)
            if not self.waiting:
                self.advance()

"""When a step of somebody's training begins and ends.

A step is one `optimizer.step()` of the primary optimizer: the first one that steps. A second optimizer takes part in
the step in which it steps, and ends none. Where one may follow the primary, the step waits for it until the next pass
begins: `primary.step(); second.step()` is one step. A GAN's second network runs in between: its update is in the step
after. An optimizer inside an optimizer counts once, with the outer one. A
GradScaler that finds an overflow does not call the optimizer: such an iteration is no step, and what it did belongs to
the step after it. Without any optimizer a step is one forward pass of the outermost module (`roots.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle


class Watcher:
    """Base class of observers of a script's steps; define the methods you need. Steps count from 0."""

    def on_start(self) -> None:
        """Before the script's first line."""

    def on_step_begin(self, step: int) -> None:
        """The step before is over, or the script begins."""

    def on_update_begin(self, step: int, optimizer: Optimizer) -> None:
        """Gradients are as the optimizer will use them."""

    def on_update_end(self, step: int, optimizer: Optimizer) -> None:
        """Weights are new."""

    def others_follow(self, step: int, optimizer: Optimizer) -> bool:
        """Whether, after the primary optimizer, others may still step. Who says so calls `settle` at the next pass."""
        return False

    def on_step_end(self, step: int) -> None: ...

    def on_end(self) -> None:
        """After the script's last line, however it ended."""


class OptimizerSteps:
    """Tells a watcher of steps while it is entered; `concerns` leaves other networks' optimizers out."""

    def __init__(
        self, watcher: Watcher, first: int = 0, concerns: Callable[[Optimizer], bool] = lambda optimizer: True
    ) -> None:
        self.watcher, self.step, self.concerns = watcher, first, concerns
        self.primary: Optimizer | None = None
        self.ended_by_optimizer = False
        self.waiting = False  # the primary optimizer has stepped, others may follow
        self._nested: list[Optimizer] = []
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> OptimizerSteps:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        pre: Any = self._on_step
        post: Any = self._after
        self._handles = [register_optimizer_step_pre_hook(pre), register_optimizer_step_post_hook(post)]
        self.watcher.on_step_begin(self.step)
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        if self.waiting:  # nothing follows any more, and no other step begins
            self.waiting = False
            self.watcher.on_step_end(self.step)
            self.step += 1

    def settle(self) -> bool:
        """A pass begins, and the step before it is over; unless it is an optimizer's own pass, in its closure."""
        if not self.waiting or self._nested:
            return False
        self.advance()
        return True

    def advance(self) -> None:
        """The step is over."""
        self.waiting = False
        self.watcher.on_step_end(self.step)
        self.step += 1
        self.watcher.on_step_begin(self.step)

    def advance_by_hand(self) -> None:
        """The same, said by the training loop; nothing where the optimizer has ended this step already."""
        by_optimizer, self.ended_by_optimizer = self.ended_by_optimizer, False
        if self.waiting or not by_optimizer:
            self.advance()

    def _on_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer in self._nested:  # its last step ended in an exception
            del self._nested[self._nested.index(optimizer) :]
        if optimizer is self.primary:
            self.settle()
        self._nested.append(optimizer)
        if len(self._nested) == 1 and self.concerns(optimizer):
            self.watcher.on_update_begin(self.step, optimizer)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer in self._nested:
            del self._nested[self._nested.index(optimizer) :]
        if self._nested or not self.concerns(optimizer):
            return
        self.watcher.on_update_end(self.step, optimizer)
        self.primary = self.primary or optimizer
        if optimizer is self.primary:
            self.ended_by_optimizer = True
            self.waiting = self.watcher.others_follow(self.step, optimizer)
            if not self.waiting:
                self.advance()

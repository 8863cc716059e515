"""Remembers, while a script builds its graph, which tensors are losses and which are gradients, and of what.

Optimizers nest: a loss scale around an average over ranks around Adam. The outermost knows the loss as it was
written and the gradients as they will be used, so its word is kept. Where a script calls tf.gradients itself,
that is what is known.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from viaduct.rehearsal.tf1_stage.variables import find_variables, plain_variable


@dataclass
class Gradients:
    """One loss and its gradients by variable: as computed, or as given to an optimizer to apply."""

    loss: Any  # a Tensor, or None for what is applied
    pairs: list[tuple[str, Any]] = field(default_factory=list)  # the variable's name, Tensor or IndexedSlices
    applied: bool = False

    def holds_any(self, ops: Collection[Any]) -> bool:
        """Return True if some gradient is made by one of these operators."""
        return any(part(gradient).op in ops for _, gradient in self.pairs)

    def held(self, ops: Collection[Any]) -> bool:
        """Return True if all gradients are made by these operators."""
        return bool(self.pairs) and all(part(gradient).op in ops for _, gradient in self.pairs)


_known: weakref.WeakKeyDictionary[Any, list[Gradients]] = weakref.WeakKeyDictionary()
_losses: list[Any] = []  # of the optimizers that are computing gradients, the outermost first
_applying = 0
combine: Callable[[list[Any], list[Any]], list[Any]] | None = None  # given targets and their gradients


def of(graph: Any) -> list[Gradients]:
    """Return the gradients that are known of a graph."""
    return _known.get(graph, [])


def part(gradient: Any) -> Any:
    """A tensor that stands for a gradient: itself, or the values of a sparse one."""
    return getattr(gradient, "values", gradient)


def install() -> None:
    """Wrap the optimizers and tf.gradients."""
    from keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2
    from tensorflow.python.ops import gradients_util
    from tensorflow.python.training.optimizer import Optimizer

    gradients_util._GradientsHelper = remembering(gradients_util._GradientsHelper)
    for root in (Optimizer, OptimizerV2):
        for kind in family(root):
            wrap(kind)
        root.__init_subclass__ = new_member


def family(root: Any) -> list[Any]:
    """Return a class and all its subclasses."""
    return [root, *(member for kind in root.__subclasses__() for member in family(kind))]


@classmethod  # type: ignore[misc]
def new_member(kind: Any, **named: Any) -> None:
    """A class of the script's own, or of a stand-in."""
    object.__init_subclass__(**named)
    wrap(kind)


def wrap(kind: Any) -> None:
    """Wrap an optimizer class that computes or applies gradients itself."""
    own = vars(kind)
    if "compute_gradients" in own:
        kind.compute_gradients = announcing(own["compute_gradients"])
    if "apply_gradients" in own:
        kind.apply_gradients = noting(own["apply_gradients"])


def announcing(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap compute_gradients, so that the loss is known while it runs."""

    @functools.wraps(plain)
    def compute_gradients(self: Any, loss: Any, *args: Any, **named: Any) -> Any:
        """Compute gradients while the loss is announced."""
        _losses.append(loss)
        try:
            return plain(self, loss, *args, **named)
        finally:
            _losses.pop()

    return compute_gradients


def noting(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap apply_gradients, so that its gradients are noted."""

    @functools.wraps(plain)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **named: Any) -> Any:
        """Note the gradients, then apply them."""
        global _applying
        grads_and_vars = list(grads_and_vars)
        if not _applying:
            note(None, [(variable, gradient) for gradient, variable in grads_and_vars])
        _applying += 1
        try:
            return plain(self, grads_and_vars, *args, **named)
        finally:
            _applying -= 1

    return apply_gradients


def remembering(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap tf.gradients, so that its results are remembered."""

    @functools.wraps(plain)
    def helper(ys: Any, xs: Any, *args: Any, **named: Any) -> Any:
        """Compute gradients and remember them with their targets."""
        found = plain(ys, xs, *args, **named)
        targets = list(xs) if isinstance(xs, (list, tuple)) else [xs]
        found = found if combine is None else combine(targets, found)
        loss = _losses[0] if _losses else ys
        note(loss, list(zip(targets, found, strict=True)))
        return found

    return helper


def note(loss: Any, pairs: list[tuple[Any, Any]]) -> None:
    """Remember the gradients of a loss under the names of their variables."""
    while isinstance(loss, (list, tuple)) and loss:
        loss = loss[0]
    named = [(variable_name(target), gradient) for target, gradient in pairs if gradient is not None]
    if not named:
        return
    graph = part(named[0][1]).graph
    weights = {variable.op.name for variable in find_variables(graph, "trainable_variables")}
    known = [(name, gradient) for name, gradient in named if name in weights]
    if known and not callable(loss):
        _known.setdefault(graph, []).append(Gradients(loss, known, applied=loss is None))


def variable_name(target: Any) -> str:
    """Return the name of a variable, or of the values of a sparse tensor."""
    target = plain_variable(target)
    target = getattr(target, "values", target)
    return str(target.op.name).removesuffix("/read").removesuffix("/Read/ReadVariableOp")

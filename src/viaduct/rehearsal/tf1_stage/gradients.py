"""Records the losses and the gradients of trainable variables while a script builds its graph.

A graph has two kinds of records. Every call of tf.gradients, by an optimizer or by the script, records a loss and its
gradients. A call of apply_gradients records the gradients that the optimizer applies.

Optimizers nest: a loss scale around an average over ranks around Adam, and each calls the methods of the next. The
outermost call counts: its compute_gradients gets the unscaled loss, and its apply_gradients gets gradients that are
unscaled and averaged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from viaduct.rehearsal.tf1_stage.variables import find_trainable_names, unwrap_variable
from viaduct.rehearsal.wrapping import wrap


@dataclass
class Gradients:
    """Gradients by variable, computed from one loss or applied by an optimizer."""

    loss: Any  # a Tensor; None if `is_applied`
    pairs: list[tuple[str, Any]] = field(default_factory=list)  # variable's name; gradient, a Tensor or IndexedSlices
    is_applied: bool = False  # passed to an optimizer's apply_gradients

    def has_any_from(self, ops: Collection[Any]) -> bool:
        """Return True if at least one gradient is an output of these operators."""
        return any(get_dense_tensor(gradient).op in ops for _, gradient in self.pairs)

    def has_all_from(self, ops: Collection[Any]) -> bool:
        """Return True if there are gradients, and all are outputs of these operators."""
        return bool(self.pairs) and all(get_dense_tensor(gradient).op in ops for _, gradient in self.pairs)


_by_graph: weakref.WeakKeyDictionary[Any, list[Gradients]] = weakref.WeakKeyDictionary()
_losses: list[Any] = []  # of the running compute_gradients calls, the outermost first
_apply_depth = 0  # number of running apply_gradients calls; only the outermost is recorded
# Called with the targets of tf.gradients and their gradients; its result replaces the gradients. Set by `joining.py`.
combine_over_ranks: Callable[[list[Any], list[Any]], list[Any]] | None = None


def find_recorded_gradients(graph: Any) -> list[Gradients]:
    return _by_graph.get(graph, [])


def get_dense_tensor(gradient: Any) -> Any:
    """Return a gradient, or the values of IndexedSlices."""
    return getattr(gradient, "values", gradient)


def install() -> None:
    """Wrap the optimizers and tf.gradients."""
    from keras.src.optimizers.legacy.optimizer_v2 import OptimizerV2
    from tensorflow.python.ops import gradients_util
    from tensorflow.python.training.optimizer import Optimizer

    wrap(gradients_util, "_GradientsHelper")(compute_and_record)  # the function behind tf.gradients
    for root in (Optimizer, OptimizerV2):
        for optimizer in list_subclasses(root):
            wrap_optimizer(optimizer)
        root.__init_subclass__ = init_subclass  # for classes that are defined later


def list_subclasses(root: Any) -> list[Any]:
    """Return a class and its subclasses, direct or not."""
    return [root, *(member for kind in root.__subclasses__() for member in list_subclasses(kind))]


@classmethod  # type: ignore[misc]
def init_subclass(optimizer: Any, **kwargs: Any) -> None:
    """Wrap an optimizer class that the script, or a stand-in package, defines later."""
    object.__init_subclass__(**kwargs)
    wrap_optimizer(optimizer)


def wrap_optimizer(optimizer: Any) -> None:
    """Wrap the gradient methods that an optimizer class defines itself."""
    for wrapper in (compute_gradients, apply_gradients):
        if wrapper.__name__ in vars(optimizer):
            wrap(optimizer, wrapper.__name__)(wrapper)


def compute_gradients(plain: Callable[..., Any], self: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute gradients by an optimizer's method; `compute_and_record` finds the loss in `_losses` meanwhile."""
    _losses.append(loss)
    try:
        return plain(self, loss, *args, **kwargs)
    finally:
        _losses.pop()


def apply_gradients(plain: Callable[..., Any], self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply gradients by an optimizer's method; the outermost call records them."""
    global _apply_depth
    grads_and_vars = list(grads_and_vars)
    if not _apply_depth:
        record_gradients(None, [(variable, gradient) for gradient, variable in grads_and_vars])
    _apply_depth += 1
    try:
        return plain(self, grads_and_vars, *args, **kwargs)
    finally:
        _apply_depth -= 1


def compute_and_record(plain: Callable[..., Any], ys: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute the gradients of `ys` by `plain`, combine them over the ranks if that is requested, and record them."""
    computed = plain(ys, xs, *args, **kwargs)
    targets = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    computed = computed if combine_over_ranks is None else combine_over_ranks(targets, computed)
    loss = _losses[0] if _losses else ys
    record_gradients(loss, list(zip(targets, computed, strict=True)))
    return computed


def record_gradients(loss: Any, pairs: list[tuple[Any, Any]]) -> None:
    """Record (target, gradient) pairs of a loss; the loss is None if an optimizer applies the gradients.

    Targets other than trainable variables are left out. Of several losses only the first is recorded, though
    tf.gradients adds up the gradients of all. Gradients of a loss that is a function are not recorded.
    """
    while isinstance(loss, (list, tuple)) and loss:
        loss = loss[0]
    by_name = [(get_variable_name(target), gradient) for target, gradient in pairs if gradient is not None]
    if not by_name:
        return
    _, first_gradient = by_name[0]
    graph = get_dense_tensor(first_gradient).graph
    weights = find_trainable_names(graph)
    of_weights = [(name, gradient) for name, gradient in by_name if name in weights]
    if of_weights and not callable(loss):
        _by_graph.setdefault(graph, []).append(Gradients(loss, of_weights, is_applied=loss is None))


def get_variable_name(target: Any) -> str:
    """Return the name of the variable that a target is or reads; for a sparse tensor, the name of its values."""
    target = unwrap_variable(target)
    target = getattr(target, "values", target)
    return str(target.op.name).removesuffix("/read").removesuffix("/Read/ReadVariableOp")

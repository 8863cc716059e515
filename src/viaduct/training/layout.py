"""Choice between two parallel layouts: the whole network on each rank (data), or the classifier split (hybrid).

In a hybrid run each rank has the part of the classifier for some of the classes, and a copy of all other layers.

The classifier is found by a forward pass of two blank images: it is the dense layer whose output, or a cast of it, is
the network's output. A network that computes something from its logits cannot be hybrid, because a rank has the logits
of some classes only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.cluster.layout import Classifier, compare_layouts
from viaduct.cluster.plan import Cluster
from viaduct.errors import BadValue
from viaduct.recipes import CrossEntropy, Recipe, Thor
from viaduct.training.distributed import Group

CONSIDERED = (
    "considered were the whole network on each rank, and its classifier split by classes; "
    "convolutions are not split, nor are layers spread over ranks"
)


@dataclass(frozen=True)
class Layout:
    """Decision between data and hybrid, with its reasons."""

    classifier: str | None  # name of the layer that is split; None: the layout is data
    reasons: tuple[str, ...] = ()  # for the user; empty if there was no choice

    def describe(self) -> str:
        """Return the decision for the user; empty if there was no choice."""
        chosen = "data" if self.classifier is None else f"hybrid ({self.classifier} is split over the ranks)"
        return f"Parallel {chosen}: {'; '.join(self.reasons)}." if self.reasons else ""


class CannotSplit(Exception):
    """A run cannot be hybrid; the message is the reason."""


def choose_layout(recipe: Recipe, model: nn.Module, group: Group) -> Layout:
    """Return the layout for a new network on the host; raise BadValue if the recipe demands an impossible hybrid.

    `auto` becomes hybrid if `compare_layouts` estimates it to be better; nothing is measured.
    """
    mode = recipe.parallel.mode
    if mode == "data":
        return Layout(None)
    if group.ranks == 1:
        return Layout(None, ("one rank has everything",))
    try:
        refuse_unsplittable(recipe, group)
        name, layer = find_classifier(model, recipe)
    except CannotSplit as reason:
        if mode == "auto":
            return Layout(None, (f"hybrid is not possible: {reason}",))
        error = BadValue(f"parallel.mode hybrid is not possible: {reason}.", "Use --parallel data.")
        error.is_silent = not group.is_rank_zero  # it occurs on all ranks, and rank 0 prints it
        raise error from None
    cluster = Cluster(servers=max(1, group.ranks // group.local_ranks), devices=group.local_ranks)
    comparison = compare_layouts(measure_classifier(recipe, layer), cluster)
    is_split = mode == "hybrid" or comparison.is_hybrid_better
    considered = (CONSIDERED,) if mode == "auto" else ()
    return Layout(name if is_split else None, (*comparison.list_reasons(), *considered))


def refuse_unsplittable(recipe: Recipe, group: Group) -> None:
    """Raise CannotSplit for a recipe that needs whole layers, or all logits of an image in one place."""
    if recipe.parallel.reduce == "sum":
        raise CannotSplit("parallel.reduce sums the ranks' gradients, and each rank has those of its own classes only")
    if not isinstance(recipe.loss, CrossEntropy):
        raise CannotSplit("a loss of your own needs the logits of all classes in one place")
    if recipe.metrics:
        raise CannotSplit("a metric of your own needs the logits of all classes in one place")
    if isinstance(recipe.optimizer, Thor):
        raise CannotSplit("THOR's curvature is that of whole layers")
    if callable(recipe.optimizer):
        raise CannotSplit("an optimizer of your own may need whole layers")
    if recipe.data.classes < group.ranks:
        raise CannotSplit(f"{recipe.data.classes} classes are not enough for {group.ranks} ranks")


def measure_classifier(recipe: Recipe, layer: nn.Linear) -> Classifier:
    """Return the sizes that determine the memory and messages of the classifier."""
    return Classifier(
        classes=layer.out_features,
        features=layer.in_features,
        global_batch=recipe.data.global_batch,
        accumulate=recipe.accumulate,
        gradient_bytes=4 if recipe.parallel.compress == "none" else 2,
        # The weight, its gradient, the optimizer's state and, if the recipe has them, the averaged weights.
        numbers_per_weight=2 + recipe.optimizer_slots + (recipe.ema is not None),
    )


def find_classifier(model: nn.Module, recipe: Recipe) -> tuple[str, nn.Linear]:
    """Return the name of the dense layer whose output is the network's, and the layer.

    Raise CannotSplit if there is not exactly one such layer, or if the network has an auxiliary head.
    """
    classes, size = recipe.data.classes, recipe.data.size
    dense_layers = {name: layer for name, layer in model.named_modules() if type(layer) is nn.Linear}
    layers = {name: layer for name, layer in dense_layers.items() if layer.out_features == classes}
    outputs: dict[str, Tensor] = {}

    def record_output(name: str) -> Any:
        return lambda layer, inputs, output: outputs.update({name: output})

    hooks = [layer.register_forward_hook(record_output(name)) for name, layer in layers.items()]
    try:
        with preserve_state(model), torch.enable_grad():
            result = model.train()(torch.zeros(2, 3, size, size))
    finally:
        for hook in hooks:
            hook.remove()
    logits, *auxiliary = result if isinstance(result, tuple) else (result,)
    if auxiliary:
        raise CannotSplit(
            "the network has an auxiliary head, a second classifier of as many classes that would stay whole "
            "(without it: --set network.aux=false)"
        )
    matches = [name for name, output in outputs.items() if is_cast_of(logits, output)]
    if len(matches) != 1:
        raise CannotSplit(f"the network's output is not that of an nn.Linear with {classes:,} outputs")
    return matches[0], layers[matches[0]]


def is_cast_of(logits: Tensor, output: Tensor) -> bool:
    """Return True if the logits are the output itself or a cast of it, by autograd's graph."""
    if logits is output:
        return True
    node = logits.grad_fn
    if node is not None and node.name() == "ToCopyBackward0":
        node = node.next_functions[0][0]
    return node is not None and node is output.grad_fn


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restore buffers, torch's random state on the CPU, and the modes of all modules after the block."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    modes = [(module, module.training) for module in model.modules()]
    rng_state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(rng_state)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for module, mode in modes:
            module.training = mode

"""Recognition of the network that a file of weights belongs to, by the names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from viaduct import models
from viaduct.errors import BadValue
from viaduct.models.family import TensorflowNames
from viaduct.models.links import Link
from viaduct.weights import mindspore_names
from viaduct.weights.fingerprints import replace_axis
from viaduct.weights.names import list_name_maps, list_tf_layouts

Shape = tuple[int, ...]
Options = tuple[tuple[str, Any], ...]  # keyword arguments of a network's constructor
MIN_SHARE = 0.5  # of a network's tensors that must match in a guess


@dataclass(frozen=True)
class Guess:
    """Network that a file may hold, and the share of the network's tensors that match (1: all)."""

    model: str
    classes: int
    share: float
    layout: str = ""  # naming scheme of the file; empty for PyTorch's names, and if the network has only one
    options: Options = ()  # of the network's constructor

    @property
    def is_complete(self) -> bool:
        """True if all of the network's tensors match; this can be so of several networks for one file."""
        return self.share == 1

    def __str__(self) -> str:
        return f"{self.model} with {self.classes} classes"


def recognise_tensorflow(shapes: Mapping[str, Shape]) -> list[Guess]:
    """Return the networks whose TensorFlow variables fit these names and shapes best."""
    guesses: list[Guess] = []
    for names in list_name_maps():
        if any(variable.startswith(names.scope) for variable in shapes):
            networks = list_networks(names)
            options = find_options(names, networks, shapes)
            for name in networks:
                model = build_on_meta(name, 1, options)
                for layout, links in list_tf_layouts(model).items():
                    if fit := compare_variables(model, links, shapes, class_axis=-1):
                        guesses.append(Guess(name, fit.classes, fit.share, layout, options))
    return select_best(guesses)


class Fit(NamedTuple):
    """Result of comparing a network, in one layout (naming scheme), with a checkpoint."""

    classes: int  # of the checkpoint
    share: float  # of the network's variables that are in the checkpoint with this shape


def compare_variables(
    model: nn.Module, links: Sequence[Link], shapes: Mapping[str, Shape], class_axis: int
) -> Fit | None:
    """Compare a network that was built for one class with a checkpoint; None if its classifier is not in there."""
    heads = {link.tensor: link.variables[0] for link in links if is_head(link.tensor)}
    bias_shape = shapes.get(heads["head.bias"])
    if not bias_shape:
        return None
    classes = bias_shape[class_axis]
    expected = list_variables(model, links)
    expected |= {source: replace_axis(expected[source], class_axis, classes) for source in heads.values()}
    return Fit(classes, compute_share(expected, shapes))


def recognise_mindspore(shapes: Mapping[str, Shape]) -> list[Guess]:
    """Return the networks whose MindSpore parameters fit these names and shapes best.

    Names and shapes do not show padding and epsilon. If some of these networks have the same padding and epsilon as the
    layout's reference (MindSpore's model zoo, MindCV), only these networks are returned.
    """
    guesses: list[Guess] = []
    faithful: set[Guess] = set()
    for name in models.names():
        model = build_on_meta(name, 1)
        for layout, links in mindspore_names.list_wrapped_layouts(model, shapes).items():
            if fit := compare_variables(model, links, shapes, class_axis=0):
                guess = Guess(name, fit.classes, fit.share, layout)
                guesses.append(guess)
                if not mindspore_names.describe_differences(model, layout):
                    faithful.add(guess)
    leading = select_best(guesses)
    return [guess for guess in leading if guess in faithful] or leading


def find_options(names: TensorflowNames, networks: list[str], shapes: Mapping[str, Shape]) -> Options:
    """Return the options that the shapes in a checkpoint imply; empty if a network cannot be built with them."""
    options = tuple(names.find_options(shapes).items())
    try:
        for network in networks:
            build_on_meta(network, 1, options)
    except BadValue:  # an impossible size
        return ()
    return options


def recognise_torch(shapes: Mapping[str, Shape]) -> list[Guess]:
    """Return the networks whose parameters and buffers fit these names and shapes best."""
    if not shapes.get("head.bias"):
        return []
    classes, guesses = shapes["head.bias"][0], []
    for name in models.names():
        state = build_on_meta(name, 1).state_dict()
        expected = {key: tuple(value.shape) for key, value in state.items() if is_weight(key)}
        expected |= {key: replace_axis(shape, 0, classes) for key, shape in expected.items() if is_head(key)}
        guesses.append(Guess(name, classes, compute_share(expected, shapes)))
    return select_best(guesses)


def is_head(name: str) -> bool:
    """Return True for the tensors of a classifier, which have a class axis."""
    return name.startswith(("head.", "aux.head."))


def compute_share(expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> float:
    """Return the share of `expected` in `found`; an auxiliary head is expected only if `found` has one."""
    if not any(is_auxiliary(name) for name in found):
        expected = {name: shape for name, shape in expected.items() if not is_auxiliary(name)}
    return sum(found.get(name) == shape for name, shape in expected.items()) / len(expected)


def is_auxiliary(name: str) -> bool:
    """Return True for a tensor of an auxiliary head, under the network's name or TensorFlow's."""
    return name.startswith(("aux.", "aux_"))


def select_best(guesses: list[Guess]) -> list[Guess]:
    """Return the guesses with the highest share, at least MIN_SHARE, and, of these, with the most parameters."""
    highest = max((guess.share for guess in guesses), default=0.0)
    leading = [guess for guess in guesses if guess.share == highest and highest >= MIN_SHARE]
    most = max((count_parameters(guess.model) for guess in leading), default=0)
    return [guess for guess in leading if count_parameters(guess.model) == most]


@cache
def count_parameters(name: str) -> int:
    return sum(parameter.numel() for parameter in build_on_meta(name, 1).parameters())


@cache
def build_on_meta(name: str, classes: int, options: Options = ()) -> nn.Module:
    """Build a network on the meta device, for the names and shapes of its tensors."""
    with torch.device("meta"):
        return models.build(name, classes, **dict(options))


def list_networks(names: TensorflowNames) -> list[str]:
    """Return the names of the networks that a name map applies to."""
    variants = (name for family in models.families().values() if family.tensorflow is names for name in family.variants)
    return [name for name in variants if names.apply_to(build_on_meta(name, 1))]


def is_weight(name: str) -> bool:
    """Return True for all tensors except num_batches_tracked, which only PyTorch has."""
    return not name.endswith("num_batches_tracked")


def list_tf_variables(model: nn.Module, layout: str) -> dict[str, Shape]:
    """Return name and shape of every TensorFlow variable of a network."""
    return list_variables(model, list_tf_layouts(model)[layout])


def list_variables(model: nn.Module, links: Sequence[Link]) -> dict[str, Shape]:
    """Return name and shape of every variable of a network in a checkpoint with these links."""
    shapes = {key: value.shape for key, value in model.state_dict().items()}
    return {source: link.compute_variable_shape(shapes[link.tensor]) for link in links for source in link.variables}

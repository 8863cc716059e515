"""Import of a TensorFlow or MindSpore checkpoint into a network, completely or not at all.

    imported = import_tf_checkpoint(model, "dir/model.ckpt-601000")
    imported.mapped["resnet_model/dense/kernel"]     "head.weight"
    imported.skipped                                 variables that were not used: slots, global_step, averages …

Names and shapes are compared before any weight is read, and all are read before any is copied. An auxiliary head, which
only training needs, may be missing from the checkpoint. That of the network then keeps its values, and `imported.notes`
says so; with `require_aux` this is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from viaduct.data.notices import join_first
from viaduct.errors import BadData, BadValue
from viaduct.models.links import Link
from viaduct.weights import recognise
from viaduct.weights.bundle import Bundle
from viaduct.weights.checkpoint import FrameworkCheckpoint

AVERAGE_SUFFIX = "/ExponentialMovingAverage"  # TensorFlow appends this to a variable's name for its moving average
SLOTS = ("Momentum", "LARSOptimizer", "RMSProp", "RMSProp_1")  # optimizer state, stored as VARIABLE/Momentum …

Slots = dict[str, dict[str, Tensor]]  # slot, such as "Momentum" -> parameter -> values


@dataclass(frozen=True)
class Imported:
    """Result of an import."""

    mapped: dict[str, str]  # name in the file -> parameter or buffer of the network
    skipped: list[str]  # names in the file that were not used for a parameter or buffer
    global_step: int | None  # None: the file does not have it
    notes: list[str] = field(default_factory=list)  # for the user
    slots: Slots = field(default_factory=dict)  # empty unless requested


@dataclass(frozen=True)
class Values:
    """Values of a checkpoint under the network's names."""

    tensors: dict[str, Tensor]
    imported: Imported


def import_tf_checkpoint(
    model: nn.Module, prefix: Path | str, ema: bool = False, *, slots: bool = False, require_aux: bool = False
) -> Imported:
    """Copy a checkpoint's values into a network; if a variable is missing or misshaped, raise and change nothing.

    `prefix` may also be the checkpoint's folder or index file. `ema` selects the exponential moving averages of the
    weights; `slots` also returns the optimizer's state, as far as the checkpoint has it.
    """
    if not isinstance(model, nn.Module):
        raise BadValue(f"the network is {model!r}; it must be a module, such as models.build('resnet50_v1').")
    if not isinstance(prefix, str | os.PathLike):
        raise BadValue(f"the checkpoint is {prefix!r}; it must be a path, such as 'train/model.ckpt-601000'.")
    with Bundle(Path(prefix)) as bundle:
        values = read_values(model, bundle, ema=ema, slots=slots, require_aux=require_aux)
    state = model.state_dict()
    with torch.no_grad():
        for name, value in values.tensors.items():
            state[name].copy_(value)
    return values.imported


def read_values(
    model: nn.Module,
    checkpoint: FrameworkCheckpoint,
    *,
    ema: bool = False,
    slots: bool = False,
    require_aux: bool = False,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Values:
    """Read the values of all parameters and buffers for whose names `wanted` is True.

    Raise `BadData` if one is missing or misshaped. The options are those of `import_tf_checkpoint`.
    """
    layout, links = choose_layout(model, checkpoint)
    links = [link for link in links if wanted(link.tensor)]
    notes = checkpoint.describe_differences(model, layout)
    if not require_aux and lacks_auxiliary(links, checkpoint.entries):
        links = [link for link in links if not recognise.is_auxiliary(link.tensor)]
        notes.append("the checkpoint has no auxiliary head; the network's keeps the values it has")
    if ema:
        links = link_averages(links, checkpoint)
    refuse_missing(links, checkpoint, type(model).__name__)
    refuse_misshaped(links, checkpoint, {name: tensor.shape for name, tensor in model.state_dict().items()})
    mapped = {source: link.tensor for link in links for source in link.variables}
    skipped = [name for name in checkpoint.entries if name not in mapped]
    if any(name.startswith("aux_") for name in skipped) and not any(map(recognise.is_auxiliary, model.state_dict())):
        notes.append("the checkpoint's auxiliary head is left out; the network has none")
    tensors = {link.tensor: link.to_torch([checkpoint.read(name) for name in link.variables]) for link in links}
    state = read_slots(links, checkpoint) if slots else {}
    return Values(tensors, Imported(mapped, skipped, checkpoint.step, notes, state))


def choose_layout(model: nn.Module, checkpoint: FrameworkCheckpoint) -> tuple[str, list[Link]]:
    """Return name and links of the layout (naming scheme) with the fewest missing variables."""
    layouts = checkpoint.list_layouts(model)
    return min(layouts.items(), key=lambda item: len(find_missing(item[1], checkpoint.entries)))


def find_missing(links: list[Link], entries: Collection[str]) -> list[str]:
    """Return the variables of the links that are not in the checkpoint."""
    return [source for link in links for source in link.variables if source not in entries]


def lacks_auxiliary(links: list[Link], entries: Collection[str]) -> bool:
    """Return True if the network has an auxiliary head and the checkpoint has none of its variables."""
    sources = [source for link in links if recognise.is_auxiliary(link.tensor) for source in link.variables]
    return bool(sources) and not any(source in entries for source in sources)


def link_averages(links: list[Link], checkpoint: FrameworkCheckpoint) -> list[Link]:
    """Return links to the moving averages of trained tensors and, if there are any, of batch norm statistics."""
    averaged = [link for link in links if link.variables[0] + AVERAGE_SUFFIX in checkpoint]
    if not any(link.trained for link in averaged):
        raise BadData(
            f"{checkpoint.prefix} has no exponential moving averages of this network.",
            "Leave out --ema (ema=True) to use the weights.",
        )
    has_statistics = any(not link.trained for link in averaged)
    to_averages = [replace(link, variables=tuple(name + AVERAGE_SUFFIX for name in link.variables)) for link in links]
    pairs = zip(links, to_averages, strict=True)
    return [average if link.trained or has_statistics else link for link, average in pairs]


def refuse_missing(links: list[Link], checkpoint: FrameworkCheckpoint, class_name: str) -> None:
    """Raise `BadData` if the checkpoint lacks variables of the network."""
    absent = find_missing(links, checkpoint.entries)
    if absent:
        total = sum(len(link.variables) for link in links)
        raise BadData(
            f"{checkpoint.prefix} lacks {len(absent):,} of the {total:,} variables of this network "
            f"({class_name}): {join_first(absent)}.",
            *describe_likely_network(checkpoint),
        )


def refuse_misshaped(links: list[Link], checkpoint: FrameworkCheckpoint, shapes: Mapping[str, torch.Size]) -> None:
    """Raise `BadData` if variables have other shapes than in the network, for example another number of classes."""
    wrong = {}
    for link in links:
        expected = link.compute_variable_shape(shapes[link.tensor])
        for source in link.variables:
            if checkpoint.entries[source].shape != expected:
                wrong[source] = f"{source} is {checkpoint.entries[source].shape}, here {expected}"
    if not wrong:
        return
    heads = {link.variables[0]: link for link in links if recognise.is_head(link.tensor)}
    biases = [name for name in wrong if len(checkpoint.entries[name].shape) == 1]
    if biases and wrong.keys() <= heads.keys():
        raise BadData(*explain_class_mismatch(heads[biases[0]], checkpoint, shapes))
    raise BadData(
        f"{len(wrong):,} variables of {checkpoint.prefix} have other shapes than in this network: "
        f"{join_first(list(wrong.values()))}.",
        *describe_likely_network(checkpoint),
    )


def explain_class_mismatch(
    link: Link, checkpoint: FrameworkCheckpoint, shapes: Mapping[str, torch.Size]
) -> tuple[str, str]:
    """Return message and hint for a checkpoint with another number of classes."""
    stored, here = checkpoint.entries[link.variables[0]].shape[-1], shapes[link.tensor][0]
    heads = ",".join(f"{module}.*" for module in ("head", "aux.head") if f"{module}.bias" in shapes)
    return (
        f"{checkpoint.prefix} has {stored:,} classes, this network {here:,}.",
        f"Take {stored} classes (--classes {stored}), or a new head: viaduct train … --init-exclude '{heads}'",
    )


def describe_likely_network(checkpoint: FrameworkCheckpoint) -> tuple[str, ...]:
    """Return a hint with the networks that fit the checkpoint best."""
    guesses = checkpoint.guess_networks()
    if not guesses:
        return ("It looks like none of the networks that `viaduct models` shows.",)
    names = " or ".join(dict.fromkeys(guess.model for guess in guesses))
    verb = "looks like" if guesses[0].share > 0.9 else "comes closest to"
    return (f"It {verb} {names} with {guesses[0].classes} classes.",)


def read_slots(links: list[Link], checkpoint: FrameworkCheckpoint) -> Slots:
    """Return the optimizer's state by slot and parameter."""
    slots: Slots = {}
    for link in links:
        variables = [source.removesuffix(AVERAGE_SUFFIX) for source in link.variables]
        for slot in SLOTS if link.trained else ():
            names_of_variables = (checkpoint.list_slot_names(slot, variable) for variable in variables)
            for names in zip(*names_of_variables, strict=True):  # one name for each variable
                if all(name in checkpoint for name in names):
                    refuse_misshaped_slots(names, variables, checkpoint)
                    slots.setdefault(slot, {})[link.tensor] = link.to_torch([checkpoint.read(name) for name in names])
    return slots


def refuse_misshaped_slots(names: Sequence[str], variables: Sequence[str], checkpoint: FrameworkCheckpoint) -> None:
    """Raise `BadData` if a slot has another shape than its variable."""
    for name, variable in zip(names, variables, strict=True):
        shape = checkpoint.entries[name].shape
        if variable in checkpoint and shape != checkpoint.entries[variable].shape:
            expected = checkpoint.entries[variable].shape
            raise BadData(f"{checkpoint.prefix}: {name} is {shape}, its variable {expected}.")

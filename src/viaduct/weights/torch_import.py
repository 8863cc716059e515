"""Conversion of PyTorch state dicts, and of safetensors files with other names, to viaduct's safetensors, and back.

The network is given by name (`torchvision:resnet50`, `timm:NAME`, `resnet50_v15`); viaduct's own are also found by the
names and shapes of tensors. If a tensor is missing or misshaped, nothing is written.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from viaduct import models
from viaduct.atomic_files import replace_file
from viaduct.errors import BadData, BadValue
from viaduct.models import sources
from viaduct.weights import recognise, torch_names
from viaduct.weights.checkpoint import explain_write_errors
from viaduct.weights.exporting import (
    Converted,
    add_counters,
    build_metadata,
    build_network,
    describe_export,
    identify_network,
    refuse_another_network,
    write_safetensors,
)
from viaduct.weights.importing import Imported
from viaduct.weights.locate import suggest_instead
from viaduct.weights.recognise import Guess
from viaduct.weights.stored import StoredWeights, open_weights
from viaduct.weights.torch_names import (
    Match,
    describe_differences,
    describe_tensors,
    list_torchvision_names,
    match_tensors,
)

MIN_SHARE = 0.5  # at least this share of a network's tensors must fit before a file's tensors are renamed
LIKELY_SHARE = 0.9  # more than this share of a network's tensors must fit before a message mentions it


@dataclass(frozen=True)
class NetworkMatch:
    """Network that a file may be of, and the match of their tensors."""

    guess: Guess
    match: Match


def import_torch_file(source: Path, out: Path, *, model: str = "", classes: int = 0, ema: bool = False) -> Converted:
    """Write the weights of a PyTorch or safetensors file as a safetensors file with the network's own names."""
    with open_weights(source, ema=ema) as stored:
        if ema and stored.kind == "safetensors file":
            raise BadValue(f"{source} has no averaged weights.", "Leave out --ema.")
        candidate = find_network(stored, model, classes)
        if not candidate.match.is_complete:
            raise BadData(
                f"{stored.path} does not hold {candidate.guess}.",
                *candidate.match.report(),
                *describe_likely_network(stored, model),
            )
        network = build_network(candidate.guess, stored.path)
        tensors = {target: stored.read(name) for target, name in candidate.match.names_in_file.items()}
        step = stored.metadata.step
    write_safetensors(out, add_counters(network, tensors), build_metadata(candidate.guess, step, str(source), ema=ema))
    notes = describe_differences(network) if candidate.match.naming == torch_names.TORCHVISION else []
    mapped = {name: target for target, name in candidate.match.names_in_file.items()}
    match_line = candidate.match.report()[0]
    imported = Imported(mapped, list(candidate.match.unused), step, [match_line, *notes])
    return Converted(candidate.guess.model, candidate.guess.classes, len(tensors), not model, imported)


def find_network(stored: StoredWeights, model: str, classes: int) -> NetworkMatch:
    """Match the requested network, which may fit in part, or find the only network that fits completely.

    If several networks fit completely, only those with the most tensors are considered.
    """
    if model:
        return match_network(stored, model, classes)
    candidates = [match_network(stored, name, classes) for name in models.names()]
    complete = [candidate for candidate in candidates if candidate.match.is_complete]
    fullest = max((len(candidate.match.names_in_file) for candidate in complete), default=0)
    complete = [candidate for candidate in complete if len(candidate.match.names_in_file) == fullest]
    if complete and stored.kind == "safetensors file" and has_own_names(complete[0].match):
        raise BadData(f"{stored.path} has our names.", *suggest_instead(stored.path))
    if len(complete) == 1:
        return complete[0]
    if complete:
        names = ", ".join(candidate.guess.model for candidate in complete)
        raise BadData(f"{stored.path} fits several networks: {names}.", "Choose one: --model NAME.")
    raise BadData(
        f"{stored.path} fits none of our networks.",
        describe_tensors(stored.shapes),
        *describe_likely_network(stored, ""),
        "Name the network: --model torchvision:NAME, timm:NAME, or one of `viaduct models`.",
    )


def match_network(stored: StoredWeights, model: str, classes: int) -> NetworkMatch:
    """Match a file to a network with this number of classes; 0: with that of the file."""
    count = classes or count_classes(stored, model)
    network = build_without_weights(model, count)
    return NetworkMatch(Guess(model, count, 1.0), match_tensors(network, stored.shapes))


def count_classes(stored: StoredWeights, model: str) -> int:
    """Return the number of classes in a file; the network's usual number if the file has no classifier."""
    usual = 1000 if sources.is_foreign(model) else models.find_family(model).classes
    network = build_without_weights(model, usual)
    classifier = sources.find_classifier(network, usual)
    names = {f"{classifier}.bias", list_torchvision_names(network).get(f"{classifier}.bias", "")}
    for name, shape in stored.shapes.items():
        if any(name == prefix + own for prefix in torch_names.PREFIXES for own in names) and len(shape) == 1:
            return shape[0]
    return usual


def build_without_weights(model: str, classes: int) -> nn.Module:
    """Build a network on the meta device, or on the CPU if its constructor computes with values."""
    try:
        return recognise.build_on_meta(model, classes)
    except (RuntimeError, NotImplementedError):
        return models.build(model, classes)


def describe_likely_network(stored: StoredWeights, requested: str) -> list[str]:
    """Return a hint: the number of classes with which the requested network fits, or the networks that nearly fit."""
    with_stored_classes = match_network(stored, requested, 0) if requested else None
    if with_stored_classes is not None and with_stored_classes.match.is_complete:
        guess = with_stored_classes.guess
        return [f"It holds {guess}: leave out --classes, or give --classes {guess.classes}."]
    matches = {name: match_network(stored, name, 0).match for name in models.names() if name != requested}
    best = max(match.share for match in matches.values())
    if best <= LIKELY_SHARE:
        return []
    most = max(len(match.names_in_file) for match in matches.values() if match.share == best)
    likely = [name for name, match in matches.items() if match.share == best and len(match.names_in_file) == most]
    return [
        f"It looks like {' or '.join(likely)} ({best:.0%} of {'its' if len(likely) == 1 else 'their'} tensors fit)."
    ]


def rename_stored(stored: StoredWeights, network: nn.Module) -> StoredWeights:
    """Return weights under the network's own names if the file has torchvision's names or a prefix, else unchanged.

    Tensors of another shape, such as a classifier for other classes, are renamed, too.
    """
    match = match_tensors(network, stored.shapes)
    if match.share < MIN_SHARE or has_own_names(match):
        return stored
    old_names = {**match.names_in_file, **match.misshaped_names_in_file}
    renamed = set(old_names.values())
    others = {name: info for name, info in stored.tensor_infos.items() if name not in renamed}
    infos = {**{target: stored.tensor_infos[name] for target, name in old_names.items()}, **others}
    return replace(stored, tensor_infos=infos, read=lambda name: stored.read(old_names.get(name, name)))


def has_own_names(match: Match) -> bool:
    """Return True if the matching tensors have the network's own names in the file."""
    return all(target == name for target, name in match.names_in_file.items())


def export_torch_file(stored: StoredWeights, out: Path, *, model: str = "", to: str) -> Converted:
    """Write weights as a state dict, with torchvision's names (`torchvision`) or the network's own (`pytorch`)."""
    guess = identify_network(stored, model)
    network = build_network(guess, stored.path)
    refuse_another_network(network, stored, guess)
    names, notes = choose_names(guess, network, to)
    tensors = add_counters(network, {name: stored.read(name) for name in stored.tensor_infos if name in names})
    state = OrderedDict((names[name], tensors[name].contiguous()) for name in names if name in tensors)
    with explain_write_errors(out), replace_file(out) as file:
        torch.save(state, file)
    return describe_export(stored, guess, model, len(state), stored.metadata.step, notes)


def choose_names(guess: Guess, network: nn.Module, to: str) -> tuple[dict[str, str], list[str]]:
    """Return the name in the file of each tensor that is to be written, and notes for the user."""
    own_names = {name: name for name in network.state_dict()}
    if to == "pytorch" or guess.model.startswith("torchvision:"):
        return own_names, []
    names = list_torchvision_names(network)
    if not names:
        raise BadValue(
            f"torchvision has no network with the layers of {guess.model}.",
            "`--to pytorch` writes a state dict with the network's own names.",
        )
    return names, describe_differences(network)

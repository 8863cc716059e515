"""Matching of the tensors in PyTorch files with a network, by name and shape.

    match = match_tensors(network, {"conv1.weight": (64, 3, 7, 7), …})     names and shapes in the file
    match.names_in_file["stem.conv.weight"]      "conv1.weight"
    match.report()                               lines with the numbers of matching and other tensors

A file may have the network's own names or torchvision's, with one of PREFIXES. The names with the most matches are
used; tensors are never matched by shape alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from viaduct import models
from viaduct.data.notices import join_first
from viaduct.models.padding import SameConv2d
from viaduct.models.resnet import ResNet

Shape = tuple[int, ...]
PREFIXES = ("", "module.", "model.", "backbone.", "encoder.", "net.", "network.", "_orig_mod.", "ema.", "student.")
COUNTER = "num_batches_tracked"
OWN, TORCHVISION = "own names", "torchvision's names"


@dataclass(frozen=True)
class Match:
    """Match of a file's tensors with those of a network."""

    naming: str  # OWN or TORCHVISION
    names_in_file: dict[str, str]  # tensor of the network -> its name in the file
    missing: tuple[str, ...]  # names that the file lacks
    misshaped: tuple[str, ...]  # descriptions of tensors with different shapes
    unused: tuple[str, ...]  # names in the file that the network does not have
    misshaped_names_in_file: dict[str, str] = field(default_factory=dict)  # as `names_in_file`, of misshaped tensors

    @property
    def is_complete(self) -> bool:
        """True if every tensor of the network matches; batch counters may be missing."""
        return not self.missing and not self.misshaped

    @property
    def share(self) -> float:
        """Share of the network's tensors that fit; missing batch counters are left out."""
        total = len(self.names_in_file) + len(self.missing) + len(self.misshaped)
        return len(self.names_in_file) / total if total else 0.0

    def report(self) -> list[str]:
        """Return a line about the matching tensors, and one each about missing, misshaped and unused ones."""
        lines = [f"{len(self.names_in_file):,} tensors fit by name and shape ({self.naming})"]
        for title, names in (
            ("missing there", self.missing),
            ("of another shape", self.misshaped),
            ("not in this network", self.unused),
        ):
            if names:
                lines.append(f"{title}, {len(names):,}: {join_first(names)}")
        return lines


def match_tensors(network: nn.Module, found: Mapping[str, Shape]) -> Match:
    """Match a network's tensors under every naming and prefix; return the best match."""
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    candidates = [(OWN, {name: name for name in shapes})]
    renamed = list_torchvision_names(network)
    if renamed:
        candidates.append((TORCHVISION, renamed))
    matches = [match_names(naming, names, shapes, found, prefix) for naming, names in candidates for prefix in PREFIXES]
    return max(matches, key=lambda match: match.share)


def match_names(
    naming: str, names: Mapping[str, str], shapes: Mapping[str, Shape], found: Mapping[str, Shape], prefix: str
) -> Match:
    """Match a network with the tensors found in a file, under `prefix` and `names` (by the network's tensor).

    Missing batch counters are ignored.
    """
    names_in_file, missing, misshaped, misshaped_names_in_file = {}, [], [], {}
    for target, name in names.items():
        source = prefix + name
        if source not in found:
            if not target.endswith(COUNTER):
                missing.append(source)
        elif found[source] != shapes[target]:
            misshaped.append(f"{source} is {found[source]}, here {shapes[target]}")
            misshaped_names_in_file[target] = source
        else:
            names_in_file[target] = source
    expected = {prefix + name for name in names.values()}
    unused = tuple(name for name in found if name not in expected)
    return Match(naming, names_in_file, tuple(missing), tuple(misshaped), unused, misshaped_names_in_file)


def list_torchvision_names(network: nn.Module) -> dict[str, str]:
    """Return torchvision's name of each tensor of a network; empty if torchvision has no such network."""
    for family in models.families().values():
        if family.torchvision_names is not None:
            names = family.torchvision_names(network)
            if names:
                return names
    return {}


def describe_differences(network: nn.Module) -> list[str]:
    """Return a note on what a ResNet of viaduct computes differently from torchvision's with the same weights.

    The network is one that torchvision has, and so has a max pool.
    """
    if not isinstance(network, ResNet):
        return []
    differences = []
    if any(isinstance(layer, SameConv2d) for layer in network.modules()):
        differences.append("strided convolutions pad evenly there, SAME here")
    differences.append("the max pool pads evenly there, SAME here")
    sizes = " (equal for images of 32 n + 1 pixels, such as 225)"
    if network.style.epsilon != 1e-5:
        differences.append(f"batch norms have an epsilon of 1e-05 there, {network.style.epsilon:g} here")
        sizes = ""
    return [f"not quite torchvision's network: {'; '.join(differences)}{sizes}"]


def describe_tensors(found: Mapping[str, Shape]) -> str:
    """Return a hint that lists the tensors of a state dict."""
    shown = [f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in found.items()]
    if len(shown) > 3:
        shown = [*shown[:2], "…", shown[-1]]
    return f"It holds {len(found):,} tensors: {', '.join(shown)}."

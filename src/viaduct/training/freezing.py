"""Patterns of the names of a network's tensors, and frozen parameters (`--freeze`), which are not trained.

    head.*           all names that match: * stands for any characters, ? for one character, [ab] for a or b
    stages.0         this name, and all names below it
    stem,stages.0    several patterns, separated by commas
    all but head     for --freeze: all names except those that match

A frozen parameter gets no gradient and is not in the optimizer. A batch norm whose parameters are all frozen uses its
running statistics in training, too, and does not update them: otherwise the layer would still change with the images.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from torch import nn

from viaduct.errors import BadValue
from viaduct.models.sources import find_classifier
from viaduct.training.optim import NORMS

ALL_BUT = "all but "


def match_patterns(
    patterns: str, names: Iterable[str], flag: str, aliases: Mapping[str, str] | None = None
) -> set[str]:
    """Return the names that match one of the patterns; raise BadValue for a pattern without a match.

    `flag` is the flag that gave the patterns, for the message. `aliases` maps other names of the tensors, such as those
    in a TensorFlow checkpoint, to our names. They are tried for a pattern that matches none of our names.
    """
    known = list(names)
    matches: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matches_of_pattern = {name for name in known if is_match(pattern, name)}
        if not matches_of_pattern:
            # A pattern with a slash is the beginning of a TensorFlow name, such as fp32_vars/dense.
            is_prefix = "/" in pattern
            for alias, name in (aliases or {}).items():
                if name in known and (is_match(pattern, alias) or (is_prefix and alias.startswith(pattern))):
                    matches_of_pattern.add(name)
        if not matches_of_pattern:
            raise BadValue(f"{flag} {pattern!r} matches no name in this network.", suggest_names(pattern, known))
        matches |= matches_of_pattern
    return matches


def is_match(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern + ".")


def suggest_names(pattern: str, known: list[str]) -> str:
    """Return a hint with names that resemble a pattern (`head` for `heads.*`), or else with the outermost names."""
    tensors_and_modules = list(dict.fromkeys(part for name in known for part in (name, *list_parents(name))))
    near = difflib.get_close_matches(pattern.rstrip("*?."), tensors_and_modules, n=3, cutoff=0.5)
    if near:
        return f"Closest are: {', '.join(near)}."
    return f"Names begin with: {', '.join(list(dict.fromkeys(name.split('.')[0] for name in known))[:8])}."


def list_parents(name: str) -> list[str]:
    """Return the modules that contain a name: `a.b` and `a` for `a.b.weight`."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def freeze(model: nn.Module, patterns: str) -> None:
    """Exclude the parameters that match the patterns from training."""
    if not patterns.strip():
        return
    names = [name for name, _ in model.named_parameters()]
    classifier = find_classifier(model)  # in networks of other packages `head` is an alias of the classifier
    aliases = {f"head.{leaf}": f"{classifier}.{leaf}" for leaf in ("weight", "bias")}
    if patterns.strip().startswith(ALL_BUT):
        frozen = set(names) - match_patterns(patterns.strip().removeprefix(ALL_BUT), names, "--freeze all but", aliases)
    else:
        frozen = match_patterns(patterns, names, "--freeze", aliases)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadValue(f"--freeze {patterns!r} leaves nothing to train.", "Try --freeze 'all but head'.")


def set_frozen_norms_to_evaluation(network: nn.Module) -> None:
    """Set norms whose own parameters are all frozen to evaluation mode; norms without parameters keep their mode."""
    for module in network.modules():
        parameters = list(module.parameters(recurse=False))
        if isinstance(module, NORMS) and parameters and not any(parameter.requires_grad for parameter in parameters):
            module.eval()

"""Patterns over the names of a network's tensors, and weights that stay as they are.

    head.*           every name that fits: * any letters, ? one, [ab] one of these
    stages.0         that name, and everything below it
    stem,stages.0    several, separated by commas
    all but head     for --freeze: everything except what the pattern means

A frozen parameter gets no gradient and no place in the optimizer. A batch norm whose parameters are all frozen
normalises with its stored statistics during training, too, and leaves them as they are: new images would otherwise
change what the frozen weights see.
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


def matching(patterns: str, names: Iterable[str], flag: str, foreign: Mapping[str, str] | None = None) -> set[str]:
    """Return the names that match one of the patterns; a pattern without a match is an error.

    `foreign` has other frameworks' names of the same tensors: fp32_vars/dense, as TensorFlow's restore_exclude has it,
    means all that begins so.
    """
    known = list(names)
    found: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        meant = {name for name in known if means(pattern, name)}
        if not meant:
            meant = {ours for theirs, ours in (foreign or {}).items() if means_foreign(pattern, theirs)} & set(known)
        if not meant:
            raise BadValue(f"{flag} {pattern!r} matches no name in this network.", closest(pattern, known))
        found |= meant
    return found


def means(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern + ".")


def means_foreign(pattern: str, name: str) -> bool:
    """Return True if a variable is meant: TensorFlow's scopes are the beginnings of names, MindSpore's cells whole."""
    scope = "/" in pattern and name.startswith(pattern)
    return scope or means(pattern, name)


def closest(pattern: str, known: list[str]) -> str:
    """Return the module names nearest to a pattern: `heads.*` is close to `head`."""
    words = pattern.rstrip("*?.")
    modules = list(dict.fromkeys(part for name in known for part in (name, *parents(name))))
    near = difflib.get_close_matches(words, modules, n=3, cutoff=0.5)
    near = near or list(dict.fromkeys(name.split(".")[0] for name in known))[:8]
    return f"Closest are: {', '.join(near)}."


def parents(name: str) -> list[str]:
    """Return the modules that contain a name: `a.b` and `a` for `a.b.weight`."""
    words = name.split(".")
    return [".".join(words[:length]) for length in range(len(words) - 1, 0, -1)]


def freeze(model: nn.Module, patterns: str) -> None:
    """Take the parameters that the patterns mean out of training."""
    if not patterns.strip():
        return
    names = [name for name, _ in model.named_parameters()]
    classifier = find_classifier(model)  # `head`, whatever a network of another package calls it
    head = {f"head.{leaf}": f"{classifier}.{leaf}" for leaf in ("weight", "bias")}
    if patterns.strip().startswith(ALL_BUT):
        frozen = set(names) - matching(patterns.strip().removeprefix(ALL_BUT), names, "--freeze all but", head)
    else:
        frozen = matching(patterns, names, "--freeze", head)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadValue(f"--freeze {patterns!r} leaves nothing to train.", "Try --freeze 'all but head'.")


def set_frozen_norms_to_evaluation(network: nn.Module) -> None:
    """Set norms without a trainable parameter to evaluation mode while the rest trains."""
    for module in network.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, NORMS) and own and not any(parameter.requires_grad for parameter in own):
            module.eval()

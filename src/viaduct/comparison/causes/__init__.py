"""Likely causes of a divergence: one file per cause; being in this folder is registration.

Each file has a `NAME`, which is written to summary.json, and `find_cause(divergence)`. It returns a `Cause` with
evidence, advice and confidence if it may explain why the sides differ in the origin (the first tensor that is bad),
else None. A confidence is a heuristic by which causes are sorted, not a measured probability. Some files report a
second cause under a name of its own. Helpers for several causes live outside the folder.
"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from viaduct.comparison.divergence import Divergence
from viaduct.comparison.records import Cause


def find_causes(divergence: Divergence) -> tuple[Cause, ...]:
    """Return the causes that may explain the origin, most likely first."""
    with np.errstate(all="ignore"):  # the tensors may hold NaN and Inf
        causes = [examine_cause(name, divergence) for name in list_causes()]
    return tuple(sorted((cause for cause in causes if cause is not None), key=lambda cause: -cause.confidence))


def examine_cause(name: str, divergence: Divergence) -> Cause | None:
    """Return the cause if it fits. An exception in its code is a bug of viaduct: it becomes a note for the user."""
    try:
        cause: Cause | None = importlib.import_module(f"{__name__}.{name}").find_cause(divergence)
        return cause
    except Exception as error:
        divergence.failures.append(
            f"whether {name.replace('_', ' ')} explains {divergence.row.tensor_index} could not be examined: "
            f"{type(error).__name__} ({error}), a bug of viaduct; please report it"
        )
        return None


def list_causes() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))

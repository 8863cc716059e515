"""Causes of a first divergence, the origin: one file per cause; being in this folder is registration.

A cause has a `NAME`, which is written to summary.json, and `find_cause(scene)`, which returns a `Cause` with evidence
and advice, or None if it does not explain the origin. Helpers for several causes live outside the folder.
"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Scene


def find_causes(scene: Scene) -> tuple[Cause, ...]:
    """Return the causes that explain the origin, most likely first."""
    with np.errstate(all="ignore"):  # the tensors may hold NaN and Inf
        causes = [examine_cause(name, scene) for name in list_causes()]
    return tuple(sorted((cause for cause in causes if cause is not None), key=lambda cause: -cause.confidence))


def examine_cause(name: str, scene: Scene) -> Cause | None:
    """Return a cause if it fits. An exception in its code is a bug of viaduct: it is noted for the user."""
    try:
        cause: Cause | None = importlib.import_module(f"{__name__}.{name}").find_cause(scene)
        return cause
    except Exception as error:
        scene.failures.append(
            f"whether {name.replace('_', ' ')} explains {scene.row.tensor_index} could not be examined: "
            f"{type(error).__name__} ({error}), a bug of viaduct; please report it"
        )
        return None


def list_causes() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))

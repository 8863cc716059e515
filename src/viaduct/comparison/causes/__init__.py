"""Causes of a first divergence: one file per cause; being in this folder is registration.

A cause has a `NAME`, the word in summary.json, and `find_cause(scene)`, which returns a `Cause` with its evidence and
advice, or None. A helper for several causes lives outside the folder.

"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Scene


def find_causes(scene: Scene) -> tuple[Cause, ...]:
    """Return all causes that fit the origin, most likely first."""
    with np.errstate(all="ignore"):  # the tensors may hold NaN and Inf
        found = [ask_cause(name, scene) for name in list_causes()]
    return tuple(sorted((cause for cause in found if cause is not None), key=lambda cause: -cause.confidence))


def ask_cause(name: str, scene: Scene) -> Cause | None:
    """Run one cause. An exception in it is a bug of viaduct: it is noted, and the comparison continues."""
    try:
        found: Cause | None = importlib.import_module(f"{__name__}.{name}").find_cause(scene)
        return found
    except Exception as error:
        scene.failures.append(
            f"whether {name.replace('_', ' ')} explains {scene.row.tensor_index} could not be examined: "
            f"{type(error).__name__} ({error}), a mistake of viaduct's own; please report it"
        )
        return None


def list_causes() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))

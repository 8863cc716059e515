"""Why the origin went wrong: one file a cause, and lying in this folder is registration.

A cause has a `NAME`, the word in summary.json, and `look(scene)`, which gives a `Cause` with its evidence and what to
try, or None where nothing speaks for it. A helper for several causes lives outside the folder.
"""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from viaduct.comparison.rows import Cause
from viaduct.comparison.scene import Scene


def suspects(scene: Scene) -> tuple[Cause, ...]:
    """What every cause says about the origin, likeliest first."""
    with np.errstate(all="ignore"):  # the tensors are suspects: NaN and Inf are what is looked for
        found = [asked(name, scene) for name in names()]
    return tuple(sorted((cause for cause in found if cause is not None), key=lambda cause: -cause.confidence))


def asked(name: str, scene: Scene) -> Cause | None:
    """What one cause says. A mistake in it is ours: it is told, and the comparison goes on without this cause."""
    try:
        found: Cause | None = importlib.import_module(f"{__name__}.{name}").look(scene)
        return found
    except Exception as error:
        scene.failures.append(
            f"whether {name.replace('_', ' ')} explains {scene.row.tensor_index} could not be looked into: "
            f"{type(error).__name__} ({error}), a mistake of viaduct's own; please report it"
        )
        return None


def names() -> list[str]:
    """The files of this folder, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))

"""CANN's profiling_options for a TensorFlow 1 script, with the first and last operator of a training step.

    viaduct rehearse train.py --steps 2 --record rec/             writes rec/profiling_points.json
    viaduct migrate train.py --profile DIR --profile-points rec/  reads it

Without these points the device determines the first and last operator itself.
"""

from __future__ import annotations

import json
from pathlib import Path

from viaduct.cards.cann_options import POINT_OPTIONS, PROFILING_POINTS_FILE
from viaduct.errors import BadData
from viaduct.migration.options import Options

CARRIED_RECORD = Path("runs", "migrated")  # record of the migrated script, below the folder of `viaduct carry`
MAX_BYTES = 1 << 20


def render_profiling_options(options: Options) -> str:
    points = dict(zip(POINT_OPTIONS, options.profile_points, strict=True))
    return json.dumps({"output": options.profile, "training_trace": "on", **points})


def read_points(path: Path) -> tuple[str, str]:
    """Return the first operator of the forward and the last of the backward pass; "" for one that the record lacks.

    `path`: a record of `viaduct rehearse`, a folder of `viaduct carry`, or the file with the points.
    """
    candidates = [path, path / PROFILING_POINTS_FILE, path / CARRIED_RECORD / PROFILING_POINTS_FILE]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        raise BadData(
            f"there is no {PROFILING_POINTS_FILE} in {str(path)!r}.",
            "`viaduct rehearse train.py --steps 2 --record DIR` writes it for a TensorFlow 1 script that trains.",
        )
    try:
        with file.open("rb") as stream:
            points = json.loads(stream.read(MAX_BYTES))
        forward, backward = (points.get(key, "") for key in POINT_OPTIONS)
    except (ValueError, AttributeError) as error:
        raise BadData(f"{file} is damaged: {error}.", "Rehearse once more.") from None
    for key, name in zip(POINT_OPTIONS, (forward, backward), strict=True):
        if not isinstance(name, str):
            raise BadData(f"{file}: {key} is {name!r}; it must be the name of an operator.", "Rehearse once more.")
    return forward, backward

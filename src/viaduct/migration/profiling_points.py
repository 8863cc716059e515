"""CANN's profiling_options in a migrated TensorFlow 1 script, with the points of a rehearsal's graph.

    viaduct rehearse train.py --steps 2 --record rec/             writes rec/profiling_points.json
    viaduct migrate train.py --profile DIR --profile-points rec/  reads it

Nothing is imported or run for it. Without points the device looks for the first and last operator of a step itself.
"""

from __future__ import annotations

import json
from pathlib import Path

from viaduct.errors import BadData
from viaduct.migration.options import Options

FILE = "profiling_points.json"  # of a record of `viaduct rehearse`
CARRIED = Path("runs", "migrated")  # the record of the migrated script in a folder of `viaduct carry`
POINTS = ("fp_point", "bp_point")
LARGEST = 1 << 20


def write_profiling_options(options: Options) -> str:
    """Return profiling_options as JSON."""
    points = dict(zip(POINTS, options.profile_points, strict=True))
    return json.dumps({"output": options.profile, "training_trace": "on", **points})


def read_points(path: Path) -> tuple[str, str]:
    """Return the points in a rehearsal's record, in what `viaduct carry` wrote, or in such a file itself."""
    candidates = [path, path / FILE, path / CARRIED / FILE]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        raise BadData(
            f"there is no {FILE} in {str(path)!r}.",
            "`viaduct rehearse train.py --steps 2 --record DIR` of a TensorFlow 1 script that trains writes it.",
        )
    try:
        with file.open("rb") as opened:
            given = json.loads(opened.read(LARGEST))
        forward, backward = (given.get(key, "") for key in POINTS)
    except (ValueError, AttributeError) as error:
        raise BadData(f"{file} is damaged: {error}.", "Rehearse once more.") from None
    for key, name in zip(POINTS, (forward, backward), strict=True):
        if not isinstance(name, str):
            raise BadData(f"{file}: {key} is {name!r}; it must be the name of an operator.", "Rehearse once more.")
    return forward, backward

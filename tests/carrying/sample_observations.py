"""Made-up observations of a rehearsal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from viaduct.carrying.observations import Observations, Rank
from viaduct.comparison.drift import Drift, Options
from viaduct.comparison.records import Explanation, StoredDump


def make_observation(shift: float = 0.0, **given: Any) -> Observations:
    """Return observations of one rank and three steps; floats are multiplied by 1 + `shift`."""
    content: dict[str, Any] = {
        "losses": [[2.0 * (1 + shift)], [1.0 * (1 + shift)], [0.5 * (1 + shift)]],
        "gradients": {"w": (np.ones(4) * (1 + shift)).astype(np.float32)},
        "weights": {"w": (np.ones(4) * (1 + shift)).astype(np.float32), "steps": np.array(8)},
        **given,
    }
    return Observations([Rank(0, **content)])


def no_drift() -> Drift:
    """Return a comparison of two runs that recorded no tensors."""
    side = StoredDump(Path("runs"), "rehearsal", ())
    return Drift(side, side, (), Explanation("nothing could be compared.", None), Options())

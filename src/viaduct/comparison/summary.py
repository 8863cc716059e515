"""summary.json: the answer for other programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from viaduct import __version__
from viaduct.comparison.curves import Curves
from viaduct.comparison.drift import Drift, Options
from viaduct.comparison.rows import Origin, Row, counts
from viaduct.comparison.tensors import Side
from viaduct.comparison.thresholds import DEFAULTS

KIND = "drift"


def summary(drift: Drift) -> dict[str, Any]:
    """Counts by result, the origin and its cause, and how it was compared."""
    explanation = drift.explanation
    origin = explanation.origin
    return {
        "kind": KIND,
        "viaduct": __version__,
        "verdict": {0: "good", 1: "bad", 2: "nothing compared"}[drift.exit_code],
        "headline": explanation.headline,
        "counts": counts(drift.rows),
        "origin": origin.op if origin else None,
        "where": place(drift, origin) if origin else None,
        "cause": explanation.cause,
        "causes": [finite(asdict(cause)) for cause in explanation.causes],
        "further_origins": [place(drift, other) for other in explanation.further],
        "thresholds": limits(drift.options),
        "kld": drift.options.kld,
        "left": facts(drift.left),
        "right": facts(drift.right),
        "notes": list(drift.notes),
    }


def place(drift: Drift, origin: Origin) -> dict[str, Any]:
    row = drift.rows[origin.row]
    named = {"op": origin.op, "kind": origin.kind, "step": origin.step, "rank": origin.rank}
    tensor = {
        "tensor": row.tensor_index,
        "parameter": row.stored.parameter,
        "result": row.result,
        "index": row.pair.group,
    }
    return {**named, **tensor, "why": origin.why, "reason": row.reason, "measures": numbers(row)}


def numbers(row: Row) -> dict[str, Any] | None:
    if row.measures is None:
        return None
    names = ("cosine", "max_absolute", "relative_euclidean", "root_mean_square", "mismatched")
    return {name: finite(getattr(row.measures, name)) for name in names}


def limits(options: Options) -> dict[str, Any]:
    """Return the limits given by hand, how they were measured, or those of every dtype."""
    if options.measured:
        return {"measured": options.measured}
    if options.thresholds is not None:
        return {"given": options.thresholds.given()}
    return {"defaults": {dtype: limit.given() for dtype, limit in DEFAULTS.items()}}


def facts(side: Side) -> dict[str, Any]:
    return {"path": str(side.path), "kind": side.kind, "tensors": len(side.tensors), "settings": dict(side.settings)}


def curve_summary(curves: Curves) -> dict[str, Any]:
    """The same form for two runs without dumps."""
    parting = curves.parting
    return {
        "kind": KIND,
        "viaduct": __version__,
        "verdict": "good" if curves.exit_code == 0 else "bad",
        "headline": curves.headline,
        "counts": {},
        "origin": None,
        "cause": None,
        "curves": {
            "steps": len(curves.steps),
            "parting": None if parting is None else finite(asdict(parting)),
            "not_finite": len(curves.lost),
            "not_compared": [len(side.steps) - len(curves.steps) for side in (curves.left, curves.right)],
            "left": str(curves.left.path),
            "right": str(curves.right.path),
        },
        "notes": list(curves.notes),
    }


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become texts."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    return value

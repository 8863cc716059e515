"""summary.json: the result of a comparison for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from viaduct import __version__
from viaduct.comparison.curves import CurveComparison
from viaduct.comparison.drift import Drift, Options
from viaduct.comparison.index import encode_float
from viaduct.comparison.records import Origin, StoredDump, count_results
from viaduct.comparison.thresholds import DEFAULTS

SUMMARY_KIND = "drift"  # by which an earlier summary is recognised (output.py)
MAIN_MEASURES = ("cosine", "max_absolute", "relative_euclidean", "root_mean_square", "mismatched")


def make_summary(drift: Drift) -> dict[str, Any]:
    """Return counts by result, the origin and its cause, and the options of the comparison."""
    explanation = drift.explanation
    origin = explanation.origin
    return {
        "kind": SUMMARY_KIND,
        "viaduct": __version__,
        "verdict": {0: "good", 1: "bad", 2: "nothing compared"}[drift.exit_code],
        "headline": explanation.headline,
        "counts": count_results(drift.rows),
        "origin": origin.op if origin else None,
        "where": describe_origin(drift, origin) if origin else None,
        "cause": explanation.cause,
        "causes": [encode_nonfinite(asdict(cause)) for cause in explanation.causes],
        "further_origins": [describe_origin(drift, other) for other in explanation.further],
        "thresholds": describe_thresholds(drift.options),
        "kld": drift.options.kld,
        "left": describe_side(drift.left),
        "right": describe_side(drift.right),
        "notes": list(drift.notes),
    }


def describe_origin(drift: Drift, origin: Origin) -> dict[str, Any]:
    """Return an origin with its tensor and measures."""
    row = drift.rows[origin.row_index]
    measures = {name: encode_nonfinite(getattr(row.measures, name)) for name in MAIN_MEASURES} if row.measures else None
    return {
        "op": origin.op,
        "kind": origin.kind,
        "step": origin.step,
        "rank": origin.rank,
        "tensor": row.tensor_index,
        "parameter": row.tensor.parameter,
        "result": row.result,
        "index": row.pair.group,
        "why": origin.why,
        "reason": row.reason,
        "measures": measures,
    }


def describe_thresholds(options: Options) -> dict[str, Any]:
    """Return how the limits were measured, or those given by the user, or else the defaults of every dtype."""
    if options.threshold_source:
        return {"measured": options.threshold_source}
    if options.thresholds is not None:
        return {"given": options.thresholds.list_limits()}
    return {"defaults": {dtype: limit.list_limits() for dtype, limit in DEFAULTS.items()}}


def describe_side(side: StoredDump) -> dict[str, Any]:
    return {"path": str(side.path), "kind": side.kind, "tensors": len(side.tensors), "settings": dict(side.settings)}


def make_curve_summary(curves: CurveComparison) -> dict[str, Any]:
    """Return the summary of a comparison of loss curves: the fields of `make_summary` that apply, and `curves`."""
    first = curves.first_difference
    return {
        "kind": SUMMARY_KIND,
        "viaduct": __version__,
        "verdict": "good" if curves.exit_code == 0 else "bad",
        "headline": curves.headline,
        "counts": {},
        "origin": None,
        "cause": None,
        "curves": {
            "steps": len(curves.steps),
            "parting": None if first is None else encode_nonfinite(asdict(first)),
            "not_finite": len(curves.nonfinite_steps),
            "not_compared": [len(side.steps) - len(curves.steps) for side in (curves.left, curves.right)],
            "left": str(curves.left.path),
            "right": str(curves.right.path),
        },
        "notes": list(curves.notes),
    }


def encode_nonfinite(value: Any) -> Any:
    """Return a value, or a mapping with all its values, in which NaN and infinities are texts."""
    if isinstance(value, Mapping):
        return {name: encode_nonfinite(item) for name, item in value.items()}
    return encode_float(value) if isinstance(value, float) else value

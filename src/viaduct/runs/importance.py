"""Order in which recipe fields that differ are listed: those that probably change the result most come first."""

from __future__ import annotations

from fnmatch import fnmatchcase

# From the most to the least important; a field has the rank of the first pattern that matches.
ORDER = (
    "model",
    "network",
    "data",
    "data.classes",
    "data.size",
    "data.preprocess",
    "optimizer",
    "optimizer.lr",
    "data.global_batch",
    "schedule",
    "schedule.*",
    "epochs",
    "steps",
    "optimizer.*",
    "loss",
    "loss.*",
    "init.*",
    "ema",
    "ema.*",
    "precision.*",
    "mixup",
    "cutmix",
    "clip_norm",
    "seed",
    "accumulate",
    "aux_weight",
    "data.auto_augment",
    "data.*",
    "parallel.*",
    "*",
)
BOOKKEEPING = (
    *("data.workers", "data.prefetch", "data.eval_batch", "evaluation", "evaluation.*", "checkpoint", "checkpoint.*"),
    *("log", "log.*", "expects*", "sink", "callbacks", "metrics"),
)
"""Fields about logging, evaluation and data loading."""


def is_bookkeeping(field: str) -> bool:
    """Return True for a field that should not change the weights."""
    return any(fnmatchcase(field, pattern) for pattern in BOOKKEEPING)


def rank_importance(field: str) -> int:
    """Return the rank of a field: the smaller, the more important."""
    if is_bookkeeping(field):
        return len(ORDER)
    return next(position for position, pattern in enumerate(ORDER) if fnmatchcase(field, pattern))

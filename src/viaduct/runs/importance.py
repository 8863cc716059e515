"""Which fields of a recipe are likely to matter to its result: the order in which differences are told."""

from __future__ import annotations

from fnmatch import fnmatchcase

# From what decides a result most to what decides nothing; a field has the place of the first pattern that fits.
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
    "clip_norm",
    "seed",
    "accumulate",
    "aux_weight",
    "data.auto_augment",
    "data.*",
    "parallel.*",
    "*",
)
BOOKKEEPING = ("data.workers", "data.prefetch", "data.eval_batch", "evaluation.*", "checkpoint.*", "log.*", "expects*")
BOOKKEEPING_PARTS = ("evaluation", "checkpoint", "log", "sink", "callbacks", "metrics")
"""Fields that say what is watched and how work is fed: the weights come out the same."""


def is_bookkeeping(field: str) -> bool:
    return field in BOOKKEEPING_PARTS or any(fnmatchcase(field, pattern) for pattern in BOOKKEEPING)


def rank_importance(field: str) -> int:
    """Return the place of a field among differences: the smaller, the earlier it is told."""
    if is_bookkeeping(field):
        return len(ORDER)
    return next(position for position, pattern in enumerate(ORDER) if fnmatchcase(field, pattern))

"""viaduct ports the training of image classifiers to the accelerator you were given.

From Python (docs/api.md): `viaduct.train`, `viaduct.records`, `viaduct.fuse`, `viaduct.sink`, `viaduct.compare`,
`viaduct.migrate`. Importing this package imports neither its other modules nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.api import (
        Migration,
        RecordLoader,
        Run,
        compare,
        fuse,
        fused_parts,
        migrate,
        records,
        sink,
        train,
        unfuse,
    )

__version__ = "0.1.0"
__all__ = [
    "Migration", "RecordLoader", "Run", "compare", "fuse", "fused_parts", "migrate", "records", "sink", "train",
    "unfuse",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the API at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from viaduct import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

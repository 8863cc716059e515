"""Weights of other origin: checkpoints of TensorFlow and MindSpore, without either, and safetensors files.

    from viaduct.weights import import_tf_checkpoint
    done = import_tf_checkpoint(model, "dir/model.ckpt-601000")

`bundle` and `table` are TensorFlow's format, `mindspore` is MindSpore's, `maps/` the names in each reference,
`importing` and `exporting` the ways in and out, `stored` whatever file or folder a person points at, `recognise` which
network it is of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.weights.importing import Imported, import_tf_checkpoint

__all__ = ["Imported", "import_tf_checkpoint"]


def __getattr__(name: str) -> Any:
    """Import torch when values are wanted: names and shapes are had without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from viaduct.weights import importing

    return getattr(importing, name)

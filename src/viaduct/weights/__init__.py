"""Weights: checkpoints of TensorFlow and MindSpore, read without either package, PyTorch and safetensors files.

    from viaduct.weights import import_tf_checkpoint
    imported = import_tf_checkpoint(model, "dir/model.ckpt-601000")

`bundle` and `table` read and write TensorFlow's format, `mindspore` MindSpore's. `maps/` has the names of each
reference, `importing` and `exporting` convert weights, `stored` opens weights of any kind, and `recognise` finds their
network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viaduct.weights.importing import Imported, import_tf_checkpoint

__all__ = ["Imported", "import_tf_checkpoint"]


def __getattr__(name: str) -> Any:
    """Import torch only when a name in `__all__` is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from viaduct.weights import importing

    return getattr(importing, name)

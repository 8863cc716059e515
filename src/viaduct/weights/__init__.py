"""Weights in files: TensorFlow and MindSpore checkpoints (without these packages), PyTorch and safetensors files.

    from viaduct.weights import import_tf_checkpoint
    imported = import_tf_checkpoint(model, "dir/model.ckpt-601000")     copies the values into the network

bundle.py and table.py read and write TensorFlow's format, mindspore.py MindSpore's; checkpoint.py is their interface.
stored.py opens weights of any kind. names.py and mindspore_names.py have the names that other frameworks use;
importing.py, exporting.py and torch_import.py convert weights. recognise.py finds the network that weights belong to.
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

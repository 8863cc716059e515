"""`import tensorflow` gives TensorFlow 1: compat.v1 under that name, with the real package's path beneath it.

Internals (`tensorflow.python…`) are found as ever; `tensorflow.keras` is compat.v1's, since newer optimizers of Keras
do not work in graphs; `tensorflow.contrib` is `contrib/` here, and `tensorflow.examples` lies in `parts/`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

VERSION = "1.15.0"
CONTRIB = Path(__file__).parent / "contrib"
PARTS = Path(__file__).parent / "parts"
_V1 = "tensorflow._api.v2.compat.v1"


def install() -> None:
    """Install compat.v1 as `tensorflow`."""
    import tensorflow as real

    v1: Any = real.compat.v1
    v1.disable_v2_behavior()
    load_lazy_parts(v1)
    v1.__path__ = [*real.__path__, *v1.__path__, str(PARTS)]
    v1.__spec__.submodule_search_locations = v1.__path__
    v1.__version__ = v1.VERSION = VERSION
    v1.compat = real.compat
    sys.modules["tensorflow"] = v1
    name_submodules(v1)
    add_contrib(v1)


def load_lazy_parts(v1: Any) -> None:
    """Keras and the Estimators load when they are first asked for; they are to be there under their new names.

    What turns a Keras model into an Estimator asks for names of TensorFlow 2, and binds them here.
    """
    import tensorflow_estimator.python.estimator.keras_lib  # noqa: F401

    for part in (v1.keras, v1.estimator):
        part.__name__  # noqa: B018
        dir(part)
    v1.keras = sys.modules["keras.api._v1.keras"]
    v1.estimator = sys.modules["tensorflow_estimator.python.estimator.api._v1.estimator"]


def name_submodules(v1: Any) -> None:
    """`import tensorflow.train` as in TensorFlow 1, where each part was a module of that name."""
    parts = {"keras": v1.keras, "estimator": v1.estimator}
    for root in ("tensorflow", "tensorflow.compat.v1", _V1):
        for name, module in parts.items():
            rename(module.__name__, f"{root}.{name}")
    rename(_V1, "tensorflow", but=("compat", "keras", "estimator"))


def rename(old: str, new: str, but: tuple[str, ...] = ()) -> None:
    """A module and those within it under another name too."""
    for name, module in list(sys.modules.items()):
        suffix = name.removeprefix(old)
        inside = name == old or (name.startswith(old + ".") and not suffix[1:].startswith(but or ("\0",)))
        if inside and (suffix or old != _V1):
            sys.modules[new + suffix] = module


def add_contrib(v1: Any) -> None:
    """Make the stand-in for tf.contrib importable and an attribute of TensorFlow."""
    spec = importlib.util.spec_from_file_location(
        "tensorflow.contrib", CONTRIB / "__init__.py", submodule_search_locations=[str(CONTRIB)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tensorflow.contrib"] = module
    spec.loader.exec_module(module)
    v1.contrib = module
    sys.meta_path.append(MissingContrib())


class MissingContrib:
    """Comes last, where nobody has found a part of tf.contrib: says which are there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Refuse a part of tf.contrib that a rehearsal does not have, and name those that it has."""
        if not name.startswith("tensorflow.contrib."):
            return None
        there = ", ".join(sorted(file.stem for file in CONTRIB.iterdir() if not file.stem.startswith("_")))
        raise ModuleNotFoundError(
            f"{name}: tf.contrib went with TensorFlow 2, and the rehearsal has only a part of it: {there}.", name=name
        )

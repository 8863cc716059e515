"""Makes `import tensorflow` import TensorFlow 1, the module tensorflow.compat.v1.

Internals (`tensorflow.python…`) are still the real package's. `tensorflow.keras` is compat.v1's, since newer optimizers
of Keras do not work in graphs. `tensorflow.contrib` is the folder `contrib` here, and `tensorflow.examples` is in
`parts`.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

VERSION = "1.15.0"  # the version that scripts see
CONTRIB = Path(__file__).parent / "contrib"
PARTS = Path(__file__).parent / "parts"
_V1 = "tensorflow._api.v2.compat.v1"


def install() -> None:
    """Install compat.v1 as `tensorflow`."""
    import tensorflow as real

    v1: Any = real.compat.v1
    v1.disable_v2_behavior()
    load_lazy_modules(v1)
    v1.__path__ = [*real.__path__, *v1.__path__, str(PARTS)]
    v1.__spec__.submodule_search_locations = v1.__path__
    v1.__version__ = v1.VERSION = VERSION
    v1.compat = real.compat
    sys.modules["tensorflow"] = v1
    add_submodule_aliases(v1)
    add_contrib(v1)


def load_lazy_modules(v1: Any) -> None:
    """Load Keras and the Estimators so that they can get other names; TensorFlow loads them at their first use.

    keras_lib needs names of TensorFlow 2, so it is imported before `tensorflow` is replaced.
    """
    import tensorflow_estimator.python.estimator.keras_lib  # noqa: F401

    for lazy in (v1.keras, v1.estimator):  # using a lazy module loads it
        lazy.__name__  # noqa: B018
        dir(lazy)
    v1.keras = sys.modules["keras.api._v1.keras"]
    v1.estimator = sys.modules["tensorflow_estimator.python.estimator.api._v1.estimator"]


def add_submodule_aliases(v1: Any) -> None:
    """Make `import tensorflow.train` and the like work, as in TensorFlow 1."""
    parts = {"keras": v1.keras, "estimator": v1.estimator}
    for root in ("tensorflow", "tensorflow.compat.v1", _V1):
        for name, module in parts.items():
            add_alias(module.__name__, f"{root}.{name}")
    add_alias(_V1, "tensorflow", excluded=("compat", "keras", "estimator"))


def add_alias(old: str, new: str, excluded: tuple[str, ...] = ()) -> None:
    """Add a module and its submodules to sys.modules under a new name, without submodules that begin with `excluded`.

    The module compat.v1 itself is added by `install`.
    """
    for name, module in list(sys.modules.items()):
        suffix = name.removeprefix(old)
        is_included = name == old or (name.startswith(old + ".") and not suffix[1:].startswith(excluded))
        if is_included and (suffix or old != _V1):
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
    sys.meta_path.append(MissingContribFinder())


class MissingContribFinder:
    """Last finder of sys.meta_path, which raises an error with a list of the existing modules of tf.contrib."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Raise ModuleNotFoundError for a module below tf.contrib."""
        if not name.startswith("tensorflow.contrib."):
            return None
        available = ", ".join(sorted(file.stem for file in CONTRIB.iterdir() if not file.stem.startswith("_")))
        raise ModuleNotFoundError(
            f"{name}: TensorFlow 2 has no tf.contrib, and the rehearsal has only a part of it: {available}.", name=name
        )

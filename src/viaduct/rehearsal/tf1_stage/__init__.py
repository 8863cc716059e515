"""The TensorFlow 1 stage: runs scripts written for TensorFlow 1.15 on TensorFlow 2.15, with stand-ins for the adapters.

An adapter is a vendor's package that brings TensorFlow 1 to its card, such as Ascend's npu_bridge. TensorFlow 2.15 is
viaduct's `tf` extra.

    install("npu")        npu_bridge and hccl can be imported; limits of the NPU are reported (`limits.py`)
    install("mlu")        /mlu:0 and config.mlu_options are accepted, as in Cambricon's TensorFlow; Horovod uses gloo
    install("original")   GPU devices are the CPU, and Horovod uses gloo

`install` must be called before the script imports TensorFlow, and cannot be undone. `watch.py` counts and bounds the
script's steps and records their results. Importing this package needs no TensorFlow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import get_args

from viaduct.errors import BadValue
from viaduct.extras import install_line, is_installed, require
from viaduct.rehearsal.plan import Platform
from viaduct.rehearsal.tf1_stage import state

# The folder with the stand-in packages: npu_bridge and hccl for the NPU, Horovod for the others.
STAND_IN_FOLDERS = {"npu": "site", "mlu": "horovod_site", "original": "horovod_site"}


def require_tensorflow() -> None:
    """Raise a ViaductError if TensorFlow is not installed, or is a release without Estimators."""
    require("tensorflow")
    if not is_installed("tensorflow_estimator"):
        raise BadValue("this TensorFlow has no Estimators: TensorFlow 1 scripts need 2.15.", install_line("tensorflow"))


def install(platform: Platform, *, seed: int | None = None) -> None:
    """Prepare this process to run TensorFlow 1 scripts; with a seed, all runs draw the same random numbers.

    The seed of a random operator depends on `seed` and the operator's scope (`seeding.py`).
    """
    if platform not in get_args(Platform):
        raise BadValue(f"a rehearsal is on 'npu', 'mlu' or 'original', not {platform!r}.")
    if state.platform:
        if state.platform != platform:
            raise BadValue(f"this process rehearses {state.platform!r} already; {platform!r} needs another process.")
        return
    require_tensorflow()
    os.environ.pop("TF_CONFIG", None)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    state.platform = platform
    state.set_default_ranks()
    # TensorFlow is imported from here on.
    from viaduct.rehearsal.tf1_stage import alias, devices, inputs, legacy, queues, seeding, sessions

    legacy.install()  # former names of NumPy and absl
    alias.install()  # `import tensorflow` imports tensorflow.compat.v1
    # The first entry, because an installed adapter would search for its device.
    sys.path.insert(0, str(Path(__file__).parent / STAND_IN_FOLDERS[platform]))
    devices.install()  # devices become the CPU
    seeding.install(seed)
    if seed is not None:
        queues.install()  # shuffling queues become reproducible
    sessions.install()  # observers see every Session.run
    if platform == "npu":
        inputs.install()  # checks of the shapes and dtypes of training graphs; dumps of tensors

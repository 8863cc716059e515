"""Makes the stand-in packages importable: npu_bridge and hccl for the NPU, Horovod for the MLU and the original.

They lie in folders that look like site-packages. These go first on the path: a real adapter that happens to be
installed would look for its device.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
FOLDERS = {"npu": HERE / "site", "mlu": HERE / "horovod_site", "original": HERE / "horovod_site"}


def install(on: Literal["npu", "mlu", "original"]) -> None:
    """Put the stage's folder first on sys.path."""
    sys.path.insert(0, str(FOLDERS[on]))

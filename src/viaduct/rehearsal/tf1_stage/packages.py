"""Makes the stand-in packages importable: npu_bridge and hccl for the NPU, Horovod where scripts still speak of it.

They lie in folders that look like site-packages, and go first on the path: a real adapter that is installed by chance
would ask for its device.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
FOLDERS = {"npu": HERE / "site", "mlu": HERE / "horovod_site", "original": HERE / "horovod_site"}


def install(on: Literal["npu", "mlu", "original"]) -> None:
    sys.path.insert(0, str(FOLDERS[on]))

"""Distribution strategies of TensorFlow that the rules take out or rename. Not a rule.

ParameterServerStrategy and TPUStrategy are reported by distribute_servers instead.
"""

from __future__ import annotations

STRATEGIES = tuple(
    f"tensorflow.{home}.{name}"
    for home in ("distribute", "distribute.experimental", "contrib.distribute")
    for name in (
        *("MirroredStrategy", "MultiWorkerMirroredStrategy", "CentralStorageStrategy", "OneDeviceStrategy"),
        "CollectiveAllReduceStrategy",
    )
)

"""Classes of tf.distribute that spread training over several devices."""

from __future__ import annotations

STRATEGIES = tuple(
    f"tensorflow.{home}.{name}"
    for home in ("distribute", "distribute.experimental", "contrib.distribute")
    for name in (
        *("MirroredStrategy", "MultiWorkerMirroredStrategy", "CentralStorageStrategy", "OneDeviceStrategy"),
        "CollectiveAllReduceStrategy",
    )
)

"""Distribution strategies of TensorFlow that the rules edit; distribute_servers reports the others."""

STRATEGIES = tuple(
    f"tensorflow.{module}.{name}"
    for module in ("distribute", "distribute.experimental", "contrib.distribute")
    for name in (
        "MirroredStrategy",
        "MultiWorkerMirroredStrategy",
        "CentralStorageStrategy",
        "OneDeviceStrategy",
        "CollectiveAllReduceStrategy",
    )
)

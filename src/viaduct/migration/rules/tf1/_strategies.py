"""Distribution strategies and device setters of TensorFlow that rules edit; distribute_servers reports other ones."""

DEVICE_SETTERS = ("tensorflow.train.replica_device_setter", "tensorflow.contrib.framework.replica_device_setter")
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

"""Distribution strategies of TensorFlow that the rules edit. Not a rule.

The rule distribute_strategy takes them out for the NPU, mlu_devices renames the devices in their arguments.
ParameterServerStrategy and TPUStrategy are reported by distribute_servers instead.
"""

STRATEGIES = tuple(
    f"tensorflow.{home}.{name}"
    for home in ("distribute", "distribute.experimental", "contrib.distribute")
    for name in (
        "MirroredStrategy",
        "MultiWorkerMirroredStrategy",
        "CentralStorageStrategy",
        "OneDeviceStrategy",
        "CollectiveAllReduceStrategy",
    )
)

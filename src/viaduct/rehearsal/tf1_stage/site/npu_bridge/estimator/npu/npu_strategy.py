"""NPUStrategy: a distribution strategy with one device in each process and the ranks as replicas."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended

from viaduct.rehearsal.tf1_stage import state


class NPUExtended(OneDeviceExtended):  # type: ignore[misc]
    """Extension of the strategy: the ranks are its replicas, and each rank gets its shard of a dataset."""

    def _experimental_distribute_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._experimental_distribute_dataset(dataset.shard(state.size(), state.rank()), *args, **kwargs)

    def _make_dataset_iterator(self, dataset: Any) -> Any:
        return super()._make_dataset_iterator(dataset.shard(state.size(), state.rank()))

    @property
    def _num_replicas_in_sync(self) -> int:
        return state.size()


class NPUStrategy(tf.distribute.Strategy):  # type: ignore[misc]
    def __init__(self, device: str = "/cpu:0") -> None:
        super().__init__(NPUExtended(self, device))

"""The Keras callback that starts all ranks from the same weights."""

from viaduct.rehearsal.tf1_stage import data_parallel


class NPUBroadcastGlobalVariablesCallback(data_parallel.BroadcastCallback):
    """Broadcasts the root's weights once, at the first batch."""

    kind = "HcomBroadcast"

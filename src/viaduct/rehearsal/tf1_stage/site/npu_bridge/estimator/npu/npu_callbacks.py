"""The Keras callback that broadcasts the root's weights."""

from viaduct.rehearsal.tf1_stage import data_parallel


class NPUBroadcastGlobalVariablesCallback(data_parallel.BroadcastCallback):
    """Broadcasts the root's weights once, at the first batch."""

    kind = "HcomBroadcast"

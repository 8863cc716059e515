"""The Keras callback that broadcasts the root rank's weights."""

from viaduct.rehearsal.tf1_stage import data_parallel


class NPUBroadcastGlobalVariablesCallback(data_parallel.BroadcastCallback):
    """Broadcasts the root rank's weights once, at the first batch."""

    op_name = "HcomBroadcast"

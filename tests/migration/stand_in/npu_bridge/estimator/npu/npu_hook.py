import tensorflow.compat.v1 as tf


class NPUBroadcastGlobalVariablesHook(tf.train.SessionRunHook):
    def __init__(self, root_rank, index, device=""):
        assert root_rank == index == 0

import numpy as np
import tensorflow.compat.v1 as tf


class npu_unary_ops:
    @staticmethod
    def gelu(x):
        return 0.5 * x * (1.0 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))))

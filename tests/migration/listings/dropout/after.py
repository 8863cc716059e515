import tensorflow as tf

from npu_bridge.estimator import npu_ops
layers = npu_ops.dropout()

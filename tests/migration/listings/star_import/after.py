import tensorflow as tf
from npu_bridge.npu_init import *

layers = npu_ops.dropout(x, keep_prob)

import tensorflow as tf
from npu_bridge.npu_init import *

profiling_options = '{"output":"/tmp/profiling","training_trace":"on","fp_point":"resnet_model/conv2d/Conv2Dresnet_model/batch_normalization/FusedBatchNormV3_Reduce","bp_point":"gradients/AddN_70"}'
profiling_config = ProfilingConfig(enable_profiling=True, profiling_options=profiling_options)
session_config = tf.ConfigProto()
config = NPURunConfig(profiling_config=profiling_config, session_config=session_config)

import tensorflow as tf
from npu_bridge.npu_init import *

session_config = tf.ConfigProto()
config = NPURunConfig(session_config=session_config, profiling_config=ProfilingConfig(enable_profiling=True, profiling_options='{"output": "/tmp/profiling", "training_trace": "on", "fp_point": "", "bp_point": ""}'))

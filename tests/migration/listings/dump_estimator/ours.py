import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import DumpConfig
from npu_bridge.estimator.npu.npu_config import NPURunConfig

session_config = tf.ConfigProto()
config = NPURunConfig(
    session_config=session_config,
    dump_config=DumpConfig(enable_dump=True, dump_path='/home/HwHiAiUser/output', dump_step='0|5|10', dump_mode="all")
)

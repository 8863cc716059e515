import tensorflow.compat.v1 as tf

from npu_bridge.estimator.npu.npu_config import NPURunConfig


class NPUEstimator(tf.estimator.Estimator):
    def __init__(self, model_fn=None, model_dir=None, config=None, params=None, job_file="", warm_start_from=None):
        if not isinstance(config, NPURunConfig):
            raise ValueError("NPUEstimator: config must be an NPURunConfig")
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

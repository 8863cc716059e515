"""tf.contrib.tpu: the Estimator's part, which runs on a CPU with use_tpu=False."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

CrossShardOptimizer = tf.tpu.CrossShardOptimizer
InputPipelineConfig = tf.estimator.tpu.InputPipelineConfig
RunConfig = tf.estimator.tpu.RunConfig
TPUConfig = tf.estimator.tpu.TPUConfig
TPUEstimator = tf.estimator.tpu.TPUEstimator
TPUEstimatorSpec = tf.estimator.tpu.TPUEstimatorSpec

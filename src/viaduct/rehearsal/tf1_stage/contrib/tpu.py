"""tf.contrib.tpu: the classes for Estimators. The CPU stands in for a TPU of one core.

use_tpu and num_shards have no effect: there is always one shard, with all of the batch.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

InputPipelineConfig = tf.estimator.tpu.InputPipelineConfig
RunConfig = tf.estimator.tpu.RunConfig
TPUConfig = tf.estimator.tpu.TPUConfig
TPUEstimatorSpec = tf.estimator.tpu.TPUEstimatorSpec


class TPUEstimator(tf.estimator.tpu.TPUEstimator):  # type: ignore[misc]
    def __init__(
        self,
        model_fn: Any = None,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        use_tpu: bool = True,
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        super().__init__(model_fn, model_dir, config, params, False, *arguments, **keywords)


class CrossShardOptimizer(tf.tpu.CrossShardOptimizer):  # type: ignore[misc]
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Apply the gradients unchanged: there is one shard."""
        return self._opt.apply_gradients(grads_and_vars, global_step, name)

"""Converts a Keras model to an NPUEstimator."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from .npu_estimator import NPUEstimator, check_config


def model_to_npu_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Any = None,
    model_dir: str | None = None,
    checkpoint_format: str = "saver",
    config: Any = None,
    job_start_file: str = "",
) -> NPUEstimator:
    """Return an NPUEstimator with TensorFlow's model function and first checkpoint for a Keras model."""
    check_config(config)
    plain = tf.keras.estimator.model_to_estimator(
        keras_model=keras_model,
        keras_model_path=keras_model_path,
        custom_objects=custom_objects,
        model_dir=model_dir or config.model_dir,
        config=config,
        checkpoint_format=checkpoint_format,
    )
    return NPUEstimator(
        plain._model_fn,
        plain.model_dir,
        config.replace(model_dir=plain.model_dir),
        job_start_file=job_start_file,
        warm_start_from=plain._warm_start_settings,
    )

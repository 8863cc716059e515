"""Layers as functions: names of variables, collections, shapes and numbers."""

from __future__ import annotations

import pytest

from rehearsal.snippets import evaluate
from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_weights_that_are_not_trainable_and_outputs_go_into_the_right_collections() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import layers
        y = layers.fully_connected(tf.ones([2, 3]), 4, trainable=False, outputs_collections="ends", scope="frozen")
        names = lambda collection: [v.op.name for v in tf.get_collection(collection)]
        answer = [names("trainable_variables"), names("model_variables"), tf.get_collection("ends") == [y]]
        """,
    )
    assert answer == [[], ["frozen/weights", "frozen/biases"], True]


def test_convolutions_have_the_sizes_and_sums_of_their_windows() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import layers
        x, ones = tf.ones([1, 5, 5, 2]), tf.ones_initializer()
        rest = {"weights_initializer": ones, "activation_fn": None}
        outputs = [
            layers.conv2d(x, 3, 3, stride=2, padding="VALID", **rest),
            layers.conv2d(x, 3, [3, 3], rate=2, padding="VALID", **rest),
            layers.separable_conv2d(x, 3, 3, 2, padding="VALID", pointwise_initializer=ones, **rest),
            layers.separable_conv2d(x, None, 3, padding="VALID", **rest),
            layers.conv2d_transpose(x, 3, 3, 2, padding="VALID", **rest),
            layers.conv2d_transpose(x, 3, 3, 2, **rest),
        ]
        answer = [[tensor.shape.as_list(), float(value.max())] for tensor, value in zip(outputs, compute(outputs))]
        """,
    )
    assert [value for _, value in answer] == [18, 18, 36, 9, 8, 8]
    shapes = [(2, 2, 3), (1, 1, 3), (3, 3, 3), (3, 3, 2)]
    assert [shape for shape, _ in answer[:4]] == [[1, *shape] for shape in shapes]


def test_a_normalizer_takes_the_place_of_the_bias_and_repeated_layers_are_numbered() -> None:
    answer = evaluate(
        "original",
        """
        from tensorflow.contrib import layers
        x = tf.ones([2, 3])
        layers.repeat(x, 2, layers.fully_connected, 3, normalizer_fn=layers.layer_norm, scope="fc")
        layers.stack(x, layers.fully_connected, [4, 5], scope="tower")
        answer = {v.op.name: v.shape.as_list() for v in tf.global_variables()}
        """,
    )
    assert [name for name in answer if name.startswith("fc/fc_2/")] == [
        f"fc/fc_2/{name}" for name in ("weights", "LayerNorm/beta", "LayerNorm/gamma")
    ]
    assert answer["tower/tower_2/weights"] == [4, 5]


def test_norms_and_dropout_compute_what_their_names_say() -> None:
    norm, unit, kept, biased = evaluate(
        "original",
        """
        from tensorflow.contrib import layers
        x = tf.constant([[3.0, 4.0], [6.0, 8.0]])
        answer = compute([layers.layer_norm(x), layers.unit_norm(x, 1), layers.dropout(x, 0.1, is_training=False),
                          layers.bias_add(x, initializer=tf.ones_initializer())])
        """,
    )
    assert norm == [[pytest.approx(-1, abs=1e-5), pytest.approx(1, abs=1e-5)]] * 2
    assert unit == [[pytest.approx(0.6), pytest.approx(0.8)]] * 2
    assert kept == [[3, 4], [6, 8]]
    assert biased == [[4, 5], [7, 9]]

"""Every network once more, as a TensorFlow 1 graph in NHWC, for checkpoints and comparisons.

Written from the facts in the papers and the references' own constants, without a look at `viaduct.models`: raw
operators, and variables with the references' names. Weights and batch norm statistics start random, so that
`tf.global_variables_initializer()` gives a network that looks trained; `tf.set_random_seed` makes it repeatable.

    with tf.Graph().as_default(), tf.Session() as session:
        logits = build("resnext50", images_NHWC, layout="b", blocks=(1, 1), filters=(32, 64))

Import this only where TensorFlow is installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow.compat.v1 as tf

Node = Any  # TensorFlow has no types of its own


def build(name: str, images_NHWC: Node, classes: int = 1001, training: bool = False, **options: Any) -> Node:
    """Logits. Options shrink the network: blocks and filters (a number a stage); cells and filters for AmoebaNet."""
    logits: Node = NETWORKS[name](Layers(training, images_NHWC.dtype), images_NHWC, classes, **options)
    return logits[0] if name.startswith("amoebanet") else logits


def build_amoebanet(images_NHWC: Node, classes: int = 1001, training: bool = True, **options: Any) -> tuple[Node, Node]:
    """Logits and auxiliary logits, without dropout."""
    logits: tuple[Node, Node] = amoebanet(Layers(training, images_NHWC.dtype), images_NHWC, classes, **options)
    return logits


class Layers:
    """Convolutions, norms and dense layers of one graph, and the numbers that tf.layers would give them."""

    def __init__(self, training: bool, dtype: Node) -> None:
        self.training = training
        self.dtype = dtype  # of the images, and so of all variables
        self.epsilon = 1e-5
        self.counts: Counter[str] = Counter()

    def numbered(self, word: str) -> str:
        """word, word_1, word_2 … in the order of creation."""
        count = self.counts[word]
        self.counts[word] += 1
        return f"{word}_{count}" if count else word

    def variable(self, name: str, shape: Sequence[int], initialiser: Node, trainable: bool = True) -> Node:
        return tf.get_variable(name, shape, self.dtype, initialiser, trainable=trainable, use_resource=False)

    def kernel(self, name: str, shape: Sequence[int]) -> Node:
        inputs = 1
        for extent in shape[:-1]:
            inputs *= extent
        return self.variable(name, shape, tf.random_normal_initializer(stddev=(2 / inputs) ** 0.5))

    def conv(
        self, x: Node, name: str, filters: int, kernel: int | tuple[int, int], stride: int = 1, padding: str = "SAME"
    ) -> Node:
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        weights = self.kernel(name, (height, width, int(x.shape[3]), filters))
        return tf.nn.conv2d(x, weights, [1, stride, stride, 1], padding)

    def norm(self, x: Node, scope: str) -> Node:
        channels = [int(x.shape[3])]
        with tf.variable_scope(scope):
            gamma = self.variable("gamma", channels, tf.random_uniform_initializer(0.5, 1.5))
            beta = self.variable("beta", channels, tf.random_normal_initializer(stddev=0.2))
            mean = self.variable("moving_mean", channels, tf.random_normal_initializer(stddev=0.2), trainable=False)
            variance = self.variable(
                "moving_variance", channels, tf.random_uniform_initializer(0.5, 1.5), trainable=False
            )
        if self.training:
            mean, variance = tf.nn.moments(x, [0, 1, 2])
        return (x - mean) * tf.rsqrt(variance + self.epsilon) * gamma + beta

    def dense(self, x: Node, classes: int, weights: str, bias: str) -> Node:
        matrix = self.kernel(weights, (int(x.shape[1]), classes))
        return tf.matmul(x, matrix) + self.variable(bias, [classes], tf.random_normal_initializer(stddev=0.2))


def mean_over_image(x: Node) -> Node:
    return tf.reduce_mean(x, [1, 2])


def pad_evenly(x: Node, cells: int) -> Node:
    return tf.pad(x, [[0, 0], [cells, cells], [cells, cells], [0, 0]])


# ResNet v1 and v2 of TensorFlow's official models, r1


def official(
    layers: Layers,
    x: Node,
    classes: int,
    *,
    version: int,
    blocks: Sequence[int],
    filters: Sequence[int] = (64, 128, 256, 512),
    bottleneck: bool = True,
    small: bool = False,  # the CIFAR stem
) -> Node:
    with tf.variable_scope("resnet_model"):
        x = fixed_conv(layers, x, filters[0], 3 if small else 7, 1 if small else 2)
        if version == 1:
            x = official_norm_relu(layers, x)
        if not small:
            x = tf.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
        block = official_block_v1 if version == 1 else official_block_v2
        for stage, (count, width) in enumerate(zip(blocks, filters, strict=True)):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                x = block(layers, x, width, stride, project=index == 0, bottleneck=bottleneck)
        if version == 2:
            x = official_norm_relu(layers, x)
        return layers.dense(mean_over_image(x), classes, "dense/kernel", "dense/bias")


def fixed_conv(layers: Layers, x: Node, filters: int, kernel: int, stride: int) -> Node:
    name = layers.numbered("conv2d") + "/kernel"
    if stride == 1:
        return layers.conv(x, name, filters, kernel)
    return layers.conv(pad_evenly(x, (kernel - 1) // 2), name, filters, kernel, stride, "VALID")


def official_norm(layers: Layers, x: Node) -> Node:
    return layers.norm(x, layers.numbered("batch_normalization"))


def official_norm_relu(layers: Layers, x: Node) -> Node:
    return tf.nn.relu(official_norm(layers, x))


def official_block_v1(layers: Layers, x: Node, filters: int, stride: int, project: bool, bottleneck: bool) -> Node:
    shortcut = x
    if project:
        shortcut = official_norm(layers, fixed_conv(layers, x, filters * (4 if bottleneck else 1), 1, stride))
    if bottleneck:
        x = official_norm_relu(layers, fixed_conv(layers, x, filters, 1, 1))
        x = official_norm_relu(layers, fixed_conv(layers, x, filters, 3, stride))
        x = official_norm(layers, fixed_conv(layers, x, 4 * filters, 1, 1))
    else:
        x = official_norm_relu(layers, fixed_conv(layers, x, filters, 3, stride))
        x = official_norm(layers, fixed_conv(layers, x, filters, 3, 1))
    return tf.nn.relu(x + shortcut)


def official_block_v2(layers: Layers, x: Node, filters: int, stride: int, project: bool, bottleneck: bool) -> Node:
    shortcut = x
    x = official_norm_relu(layers, x)
    if project:
        shortcut = fixed_conv(layers, x, filters * (4 if bottleneck else 1), 1, stride)
    if bottleneck:
        x = official_norm_relu(layers, fixed_conv(layers, x, filters, 1, 1))
        x = official_norm_relu(layers, fixed_conv(layers, x, filters, 3, stride))
        x = fixed_conv(layers, x, 4 * filters, 1, 1)
    else:
        x = official_norm_relu(layers, fixed_conv(layers, x, filters, 3, stride))
        x = fixed_conv(layers, x, filters, 3, 1)
    return x + shortcut


# ResNet-50 v1.5


def nvidia(
    layers: Layers,
    x: Node,
    classes: int,
    *,
    blocks: Sequence[int] = (3, 4, 6, 3),
    filters: Sequence[int] = (64, 128, 256, 512),
) -> Node:
    with tf.variable_scope("resnet50"):
        x = tf.nn.relu(nvidia_conv(layers, x, "conv2d", filters[0], 7, 2))
        x = tf.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
        for stage, (count, width) in enumerate(zip(blocks, filters, strict=True)):
            for index in range(count):
                with tf.variable_scope(f"btlnck_block_{stage}_{index}"):
                    x = nvidia_block(layers, x, width, 2 if stage > 0 and index == 0 else 1, project=index == 0)
        return layers.dense(mean_over_image(x), classes, "output/dense/kernel", "output/dense/bias")


def nvidia_conv(layers: Layers, x: Node, scope: str, filters: int, kernel: int, stride: int = 1) -> Node:
    return layers.norm(layers.conv(x, f"{scope}/conv2d/kernel", filters, kernel, stride), f"{scope}/BatchNorm")


def nvidia_block(layers: Layers, x: Node, filters: int, stride: int, project: bool) -> Node:
    shortcut = nvidia_conv(layers, x, "shortcut/conv2d", 4 * filters, 1, stride) if project else x
    x = tf.nn.relu(nvidia_conv(layers, x, "bottleneck_1", filters, 1))
    x = tf.nn.relu(nvidia_conv(layers, x, "bottleneck_2", filters, 3, stride))
    return tf.nn.relu(nvidia_conv(layers, x, "bottleneck_3", 4 * filters, 1) + shortcut)


# ResNeXt 32x4d, with both layouts of the grouped kernels

GROUPS = 32


def resnext(
    layers: Layers,
    x: Node,
    classes: int,
    *,
    layout: str = "a",
    blocks: Sequence[int] = (3, 4, 6, 3),
    filters: Sequence[int] = (128, 256, 512, 1024),
    stem_filters: int = 64,
) -> Node:
    layers.epsilon = 1e-4
    grouped = {"a": one_grouped_kernel, "b": many_grouped_kernels}[layout]
    with tf.variable_scope("fp32_vars"):
        x = layers.conv(pad_evenly(x, 3), layers.numbered("conv2d") + "/kernel", stem_filters, 7, 2, "VALID")
        x = tf.nn.relu(layers.norm(x, layers.numbered("BatchNorm")))
        x = tf.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
        for stage, (count, width) in enumerate(zip(blocks, filters, strict=True)):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                convolve = partial(grouped, name=f"bottleneck_{stage}_{index}")
                x = resnext_block(layers, x, width, stride, convolve, project=index == 0)
        return layers.dense(mean_over_image(x), classes, "dense/kernel", "dense/bias")


def resnext_conv(layers: Layers, x: Node, filters: int, stride: int = 1) -> Node:
    x = layers.conv(x, layers.numbered("conv2d") + "/kernel", filters, 1, stride)
    return layers.norm(x, layers.numbered("BatchNorm"))


def resnext_block(
    layers: Layers, x: Node, width: int, stride: int, grouped: Callable[..., Node], project: bool
) -> Node:
    shortcut = resnext_conv(layers, x, 2 * width, stride) if project else x
    x = tf.nn.relu(resnext_conv(layers, x, width))
    x = grouped(layers, x, width, stride)
    x = tf.nn.relu(layers.norm(x, layers.numbered("BatchNorm")))
    return tf.nn.relu(resnext_conv(layers, x, 2 * width) + shortcut)


def one_grouped_kernel(layers: Layers, x: Node, width: int, stride: int, name: str) -> Node:
    weights = layers.kernel(name, (3, 3, width // GROUPS, width))
    pairs = zip(tf.split(x, GROUPS, axis=3), tf.split(weights, GROUPS, axis=3), strict=True)
    return tf.concat([tf.nn.conv2d(part, own, [1, stride, stride, 1], "SAME") for part, own in pairs], axis=3)


def many_grouped_kernels(layers: Layers, x: Node, width: int, stride: int, name: str) -> Node:
    parts = [
        layers.conv(part, layers.numbered("conv2d") + "/kernel", width // GROUPS, 3, stride)
        for part in tf.split(x, GROUPS, axis=3)
    ]
    return tf.concat(parts, axis=3)


# AmoebaNet-D

NORMAL = (
    ("1x1", 1, "max3", 1),
    ("none", 1, "1x7_7x1", 0),
    ("1x1", 0, "1x7_7x1", 0),
    ("max3", 2, "none", 2),
    ("avg3", 1, "1x1", 5),
)
REDUCTION = (
    ("max2", 0, "max3", 0),
    ("none", 2, "3x3", 1),
    ("1x7_7x1", 2, "max3", 2),
    ("none", 3, "max2", 1),
    ("avg3", 2, "1x1", 3),
)


def amoebanet(
    layers: Layers,
    x: Node,
    classes: int,
    *,
    cells: int = 6,
    filters: int = 256,
    stem_filters: int = 32,
    aux: bool = True,
) -> tuple[Node, Node]:
    """Logits and, if asked for, auxiliary logits; its images must then be large enough."""
    with tf.variable_scope("stem"):
        x = layers.norm(layers.conv(x, "conv0/weights", stem_filters, 3, 2, "VALID"), "conv0_bn")
    states = [None, x]
    auxiliary = None

    def add(scope: str, width: int, reduce: bool) -> None:
        with tf.variable_scope(scope):
            states.append(amoebanet_cell(layers, states[-1], states[-2], width, reduce))

    add("cell_stem_0", filters // 4, True)
    add("cell_stem_1", filters // 2, True)
    reductions = [cells // 3, 2 * cells // 3]
    for index in range(cells):
        if index in reductions:
            filters *= 2
            add(f"reduction_cell_{reductions.index(index)}", filters, True)
        add(f"cell_{index}", filters, False)
        if aux and index == reductions[1] - 1:
            with tf.variable_scope(f"aux_{index}/aux_logits"):
                auxiliary = amoebanet_aux(layers, states[-1], classes)
    features = mean_over_image(tf.nn.relu(states[-1]))
    return layers.dense(features, classes, "final_layer/FC/weights", "final_layer/FC/biases"), auxiliary


def amoebanet_aux(layers: Layers, x: Node, classes: int) -> Node:
    x = tf.nn.avg_pool(tf.nn.relu(x), [1, 5, 5, 1], [1, 3, 3, 1], "VALID")
    x = tf.nn.relu(layers.norm(layers.conv(x, "proj/weights", 51, 1), "aux_bn0"))
    x = layers.conv(x, "Conv/weights", 307, (int(x.shape[1]), int(x.shape[2])), 1, "VALID")
    x = tf.nn.relu(layers.norm(x, "aux_bn1"))
    return layers.dense(tf.reshape(x, [-1, 307]), classes, "FC/weights", "FC/biases")


def amoebanet_cell(layers: Layers, x: Node, previous: Node, filters: int, reduce: bool) -> Node:
    previous = amoebanet_previous(layers, x, previous, filters)
    states = [amoebanet_pointwise(layers, x, filters, "1x1", "beginning_bn"), previous]
    for index, (left, first, right, second) in enumerate(REDUCTION if reduce else NORMAL):
        with tf.variable_scope(f"comb_iter_{index}"):
            sides = []
            for side, operation, state in (("left", left, first), ("right", right, second)):
                with tf.variable_scope(side):
                    stride = 2 if reduce and state < 2 else 1
                    sides.append(amoebanet_operation(layers, states[state], operation, filters, stride))
            states.append(sides[0] + sides[1])
    return tf.concat([states[index] for index in ((4, 5, 6) if reduce else (0, 3, 4, 6))], axis=3)


def amoebanet_previous(layers: Layers, x: Node, previous: Node, filters: int) -> Node:
    if previous is None:
        return x
    if int(previous.shape[2]) != int(x.shape[2]):
        return amoebanet_factorised(layers, tf.nn.relu(previous), filters)
    if int(previous.shape[3]) != filters:
        return amoebanet_pointwise(layers, previous, filters, "prev_1x1", "prev_bn")
    return previous


def amoebanet_factorised(layers: Layers, x: Node, filters: int) -> Node:
    shifted = tf.pad(x, [[0, 0], [0, 1], [0, 1], [0, 0]])[:, 1:, 1:, :]
    paths = [
        layers.conv(part[:, ::2, ::2, :], f"path{number}_conv/weights", filters // 2, 1)
        for number, part in ((1, x), (2, shifted))
    ]
    return layers.norm(tf.concat(paths, axis=3), "final_path_bn")


def amoebanet_pointwise(layers: Layers, x: Node, filters: int, conv: str, norm: str, stride: int = 1) -> Node:
    return layers.norm(layers.conv(tf.nn.relu(x), f"{conv}/weights", filters, 1, stride), norm)


def amoebanet_operation(layers: Layers, x: Node, operation: str, filters: int, stride: int) -> Node:
    if operation[:3] in ("max", "avg"):
        return amoebanet_pool(layers, x, operation, filters, stride)
    if operation == "none" and stride == 1 and int(x.shape[3]) == filters:
        return x
    if operation in ("none", "1x1"):
        return amoebanet_pointwise(layers, x, filters, "1x1", "bn_1", stride)
    quarter = filters // 4
    x = tf.nn.relu(amoebanet_pointwise(layers, x, quarter, "pre_1x1", "pre_bn"))
    if operation == "3x3":
        x = layers.conv(x, "3x3/weights", quarter, 3, stride)
    else:
        assert stride == 1, "this operation never works on a full-sized state of a reduction"
        x = tf.nn.relu(layers.norm(layers.conv(x, "1x7/weights", quarter, (1, 7)), "bn_1x7_7x1"))
        x = layers.conv(x, "7x1/weights", quarter, (7, 1))
    return amoebanet_pointwise(layers, layers.norm(x, "bn"), filters, "post_1x1", "post_bn")


def amoebanet_pool(layers: Layers, x: Node, operation: str, filters: int, stride: int) -> Node:
    size = int(operation[3])
    pool = tf.nn.max_pool if operation.startswith("max") else tf.nn.avg_pool
    x = pool(x, [1, size, size, 1], [1, stride, stride, 1], "SAME")
    if int(x.shape[3]) == filters:
        return x
    return layers.norm(layers.conv(x, "1x1/weights", filters, 1), "bn_1")


SIZES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}

NETWORKS: dict[str, Callable[..., Node]] = {
    **{
        f"resnet{size}_v{version}": partial(official, version=version, blocks=blocks, bottleneck=size >= 50)
        for size, blocks in SIZES.items()
        for version in (1, 2)
    },
    **{
        f"resnet{6 * count + 2}_cifar{suffix}": partial(
            official, version=version, blocks=(count,) * 3, filters=(16, 32, 64), bottleneck=False, small=True
        )
        for count in (3, 5, 7, 9, 18)
        for version, suffix in ((1, ""), (2, "_v2"))
    },
    "resnet50_v15": nvidia,
    **{f"resnext{size}": partial(resnext, blocks=SIZES[size]) for size in (50, 101, 152)},
    "amoebanet_d": amoebanet,
}

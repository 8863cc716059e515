"""A small network in the structure of the official ResNet: an Estimator under a distribution strategy."""

import argparse

import numpy as np
import tensorflow as tf


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_gpus", type=int, default=2)
    parser.add_argument("--train_steps", type=int, default=6)
    parser.add_argument("--model_dir", default="model")
    return parser.parse_args()


def get_distribution_strategy(num_gpus):
    if num_gpus == 0:
        return tf.distribute.OneDeviceStrategy("device:CPU:0")
    if num_gpus == 1:
        return tf.distribute.OneDeviceStrategy("device:GPU:0")
    return tf.distribute.MirroredStrategy(devices=["device:GPU:%d" % i for i in range(num_gpus)])


def input_fn(is_training, batch_size, num_epochs=1):
    rng = np.random.RandomState(1)
    images = rng.rand(64, 8, 8, 3).astype(np.float32)
    labels = rng.randint(0, 4, 64).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    if is_training:
        dataset = dataset.shuffle(64, seed=1)
    dataset = dataset.repeat(num_epochs)
    dataset = dataset.batch(batch_size, drop_remainder=False)
    return dataset.prefetch(1)


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN
    x = tf.layers.conv2d(features, 8, 3, padding="same", use_bias=False)
    x = tf.layers.batch_normalization(x, training=training, momentum=0.9)
    x = tf.nn.relu(x)
    x = tf.reduce_mean(x, [1, 2])
    logits = tf.layers.dense(x, 4)
    predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode=mode, predictions=predictions)
    cross_entropy = tf.losses.sparse_softmax_cross_entropy(logits=logits, labels=labels)
    l2 = 1e-4 * tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if "batch_normalization" not in v.name])
    loss = cross_entropy + l2
    train_op = None
    if training:
        step = tf.train.get_or_create_global_step()
        rate = tf.train.piecewise_constant(step, [3], [0.1, 0.01])
        optimizer = tf.train.MomentumOptimizer(rate, 0.9)
        grads = optimizer.compute_gradients(loss)
        minimize = optimizer.apply_gradients(grads, step)
        train_op = tf.group(minimize, tf.get_collection(tf.GraphKeys.UPDATE_OPS))
    accuracy = tf.metrics.accuracy(labels, predictions["classes"])
    metrics = {"accuracy": accuracy}
    tf.identity(accuracy[1], name="train_accuracy")
    return tf.estimator.EstimatorSpec(
        mode=mode, predictions=predictions, loss=loss, train_op=train_op, eval_metric_ops=metrics
    )


def main():
    flags = parse()
    session_config = tf.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, allow_soft_placement=True
    )
    run_config = tf.estimator.RunConfig(
        train_distribute=get_distribution_strategy(flags.num_gpus),
        session_config=session_config,
        save_checkpoints_secs=600,
        tf_random_seed=1,
    )
    classifier = tf.estimator.Estimator(
        model_fn=model_fn, model_dir=flags.model_dir, config=run_config, params={"batch_size": flags.batch_size}
    )
    classifier.train(input_fn=lambda: input_fn(True, flags.batch_size, 10), max_steps=flags.train_steps)
    print(classifier.evaluate(input_fn=lambda: input_fn(False, flags.batch_size), steps=4))


if __name__ == "__main__":
    main()

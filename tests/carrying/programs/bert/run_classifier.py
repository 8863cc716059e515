import numpy as np
import optimization
import tensorflow as tf

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("train_batch_size", 8, "")
flags.DEFINE_integer("eval_batch_size", 8, "")
flags.DEFINE_integer("iterations_per_loop", 1000, "")
flags.DEFINE_bool("use_tpu", False, "")
flags.DEFINE_string("output_dir", "out", "")
flags.DEFINE_integer("num_train_steps", 8, "")


def gelu(x):
    return x * 0.5 * (1.0 + tf.tanh((np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3)))))


def layer_norm(x, name):
    with tf.variable_scope(name):
        scale = tf.get_variable("gamma", [x.shape[-1]], initializer=tf.ones_initializer())
        shift = tf.get_variable("bias", [x.shape[-1]], initializer=tf.zeros_initializer())
        mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
        return (x - mean) * tf.rsqrt(variance + 1e-6) * scale + shift


def create_model(ids, training):
    table = tf.get_variable("word_embeddings", [50, 16], initializer=tf.truncated_normal_initializer(stddev=0.02))
    x = tf.nn.embedding_lookup(table, ids)
    for i in range(2):
        with tf.variable_scope("layer_%d" % i):
            q, k, v = (tf.layers.dense(x, 16, name=n) for n in ("query", "key", "value"))
            scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4.0)
            if training:
                scores = tf.nn.dropout(scores, keep_prob=0.9)
            x = layer_norm(x + tf.matmul(scores, v), "LayerNorm")
            x = layer_norm(
                x + tf.layers.dense(gelu(tf.layers.dense(x, 32, name="up")), 16, name="down"), "out_LayerNorm"
            )
    return tf.layers.dense(tf.tanh(tf.layers.dense(x[:, 0], 16, name="pooler")), 3, name="classifier")


def model_fn_builder(learning_rate, num_train_steps, num_warmup_steps, use_tpu):
    def model_fn(features, labels, mode, params):
        ids, label_ids = features["input_ids"], features["label_ids"]
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        logits = create_model(ids, is_training)
        log_probs = tf.nn.log_softmax(logits, axis=-1)
        per_example_loss = -tf.reduce_sum(tf.one_hot(label_ids, 3) * log_probs, axis=-1)
        loss = tf.reduce_mean(per_example_loss)
        if is_training:
            train_op = optimization.create_optimizer(loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu)
            return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)

        def metric_fn(per_example_loss, label_ids, logits):
            predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
            return {
                "eval_accuracy": tf.metrics.accuracy(label_ids, predictions),
                "eval_loss": tf.metrics.mean(per_example_loss),
            }

        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode, loss=loss, eval_metrics=(metric_fn, [per_example_loss, label_ids, logits])
        )

    return model_fn


def input_fn_builder(is_training, drop_remainder):
    def input_fn(params):
        batch_size = params["batch_size"]
        rng = np.random.RandomState(3)
        d = tf.data.Dataset.from_tensor_slices(
            {
                "input_ids": rng.randint(0, 50, (40, 8)).astype(np.int32),
                "label_ids": rng.randint(0, 3, 40).astype(np.int32),
            }
        )
        if is_training:
            d = d.repeat()
            d = d.shuffle(buffer_size=100, seed=5)
        return d.batch(batch_size=batch_size, drop_remainder=drop_remainder)

    return input_fn


def main(_):
    is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
    run_config = tf.contrib.tpu.RunConfig(
        cluster=None,
        master=None,
        model_dir=FLAGS.output_dir,
        save_checkpoints_steps=1000,
        tf_random_seed=1,
        tpu_config=tf.contrib.tpu.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop, num_shards=8, per_host_input_for_training=is_per_host
        ),
    )
    model_fn = model_fn_builder(1e-3, FLAGS.num_train_steps, 2, FLAGS.use_tpu)
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=model_fn,
        config=run_config,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
    )
    estimator.train(input_fn=input_fn_builder(True, True), max_steps=FLAGS.num_train_steps)
    print(estimator.evaluate(input_fn=input_fn_builder(False, False), steps=5))


if __name__ == "__main__":
    tf.app.run()

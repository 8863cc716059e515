"""Tell two made-up languages apart with a small transformer-like encoder, by hand-written sess.run loops.

    python sentences_session.py --steps 200 --checkpoint runs/sentences

Sentences of either language are random words over the same alphabet; what differs is which words follow one another.
"""

from __future__ import print_function

import argparse
import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

VOCABULARY = 32
LENGTH = 12
CLASSES = 2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150, help="training steps")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=32, help="width of the encoder")
    parser.add_argument("--keep_prob", type=float, default=0.9)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--clip_norm", type=float, default=1.0)
    parser.add_argument("--checkpoint", default="", help="where to save; a temporary directory if not given")
    parser.add_argument("--eval_every", type=int, default=50)
    parser.add_argument("--gpu", default="0", help="the card to use, where there is one")
    return parser.parse_args()


# ---- data


def make_sentences(count, seed):
    """Language 0 steps upwards through the alphabet, language 1 jumps."""
    random = np.random.RandomState(seed)
    labels = random.randint(0, CLASSES, size=count)
    start = random.randint(0, VOCABULARY, size=(count, 1))
    step = np.where(labels[:, None] == 0, 1, 7)
    words = (start + step * np.arange(LENGTH)[None, :]) % VOCABULARY
    noise = random.uniform(size=words.shape) < 0.15
    words = np.where(noise, random.randint(0, VOCABULARY, size=words.shape), words)
    return words.astype(np.int32), labels.astype(np.int32)


def build_datasets(batch_size):
    """One iterator that can be pointed at either data set."""
    train = tf.data.Dataset.from_tensor_slices(make_sentences(2000, seed=1))
    train = train.shuffle(2000).repeat().batch(batch_size)
    held_out = tf.data.Dataset.from_tensor_slices(make_sentences(500, seed=2)).batch(batch_size)
    iterator = tf.data.Iterator.from_structure(tf.data.get_output_types(train), tf.data.get_output_shapes(train))
    return iterator.get_next(), iterator.make_initializer(train), iterator.make_initializer(held_out)


# ---- model


def gelu(x):
    """Gaussian error linear unit, in its tanh form."""
    cdf = 0.5 * (1.0 + tf.tanh((np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3)))))
    return x * cdf


def layer_norm(x, scope):
    with tf.variable_scope(scope):
        width = int(x.shape[-1])
        scale = tf.get_variable("scale", [width], initializer=tf.ones_initializer())
        shift = tf.get_variable("shift", [width], initializer=tf.zeros_initializer())
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        deviation = tf.norm(centred, axis=-1, keepdims=True) / np.sqrt(width)
        return centred / (deviation + 1e-6) * scale + shift


def attention(x, hidden, keep_prob):
    """One head is enough here."""
    query = tf.layers.dense(x, hidden, use_bias=False, name="query")
    key = tf.layers.dense(x, hidden, use_bias=False, name="key")
    value = tf.layers.dense(x, hidden, use_bias=False, name="value")
    scores = tf.matmul(query, key, transpose_b=True) / np.sqrt(hidden)
    weights = tf.nn.dropout(tf.nn.softmax(scores), keep_prob)
    return tf.matmul(weights, value)


def encoder(words, hidden, keep_prob):
    with tf.variable_scope("encoder"):
        table = tf.get_variable("embedding", [VOCABULARY, hidden], initializer=tf.random_normal_initializer(stddev=0.1))
        places = tf.get_variable("places", [LENGTH, hidden], initializer=tf.random_normal_initializer(stddev=0.1))
        x = tf.nn.embedding_lookup(table, words) + places
        x = layer_norm(x + attention(x, hidden, keep_prob), "attention_norm")
        inner = tf.layers.dense(x, 4 * hidden, activation=gelu, name="inner")
        inner = tf.nn.dropout(inner, rate=1 - keep_prob)  # the other spelling of the same thing
        x = layer_norm(x + tf.layers.dense(inner, hidden, name="outer"), "feed_forward_norm")
    return tf.reduce_mean(x, axis=1)


def build_model(words, labels, options, keep_prob):
    """Loss, accuracy and the training op, with clipped gradients."""
    with tf.device("/gpu:%s" % options.gpu):
        # everything that counts runs on the card
        pooled = encoder(words, options.hidden, keep_prob)
        logits = tf.layers.dense(pooled, CLASSES, name="classifier")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    correct = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
    accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))

    global_step = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdamOptimizer(options.learning_rate)
    variables = tf.trainable_variables()
    gradients, norm = tf.clip_by_global_norm(tf.gradients(loss, variables), options.clip_norm)
    train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=global_step)
    return loss, accuracy, norm, train_op


# ---- running


def evaluate(sess, eval_init, train_init, accuracy, keep_prob):
    """Mean accuracy over the held-out sentences; afterwards the iterator gives training sentences again."""
    sess.run(eval_init)
    results = []
    while True:
        try:
            results.append(sess.run(accuracy, feed_dict={keep_prob: 1.0}))
        except tf.errors.OutOfRangeError:
            break
    sess.run(train_init)
    return float(np.mean(results))


def train(options):
    tf.set_random_seed(3)
    (words, labels), train_init, eval_init = build_datasets(options.batch_size)
    keep_prob = tf.placeholder_with_default(1.0, shape=[], name="keep_prob")
    loss, accuracy, norm, train_op = build_model(words, labels, options, keep_prob)
    saver = tf.train.Saver(max_to_keep=2)
    directory = options.checkpoint or tempfile.mkdtemp(prefix="sentences_")
    os.makedirs(directory, exist_ok=True)

    config = tf.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    sess = tf.Session(config=config)
    sess.run(tf.global_variables_initializer())
    sess.run(train_init)

    started, final = time.time(), 0.0
    for step in range(1, options.steps + 1):
        _, loss_now, norm_now = sess.run([train_op, loss, norm], feed_dict={keep_prob: options.keep_prob})
        if step % options.eval_every == 0 or step == options.steps:
            final = evaluate(sess, eval_init, train_init, accuracy, keep_prob)
            print("step %d loss %.3f norm %.2f held-out accuracy %.3f" % (step, loss_now, norm_now, final))
            saver.save(sess, os.path.join(directory, "model.ckpt"), global_step=step)
    print("%.1f steps/s, final accuracy %.3f" % (options.steps / (time.time() - started), final))
    return final


if __name__ == "__main__":
    tf.disable_v2_behavior()
    train(parse_arguments())

"""A word model with an embedding, tf.cond, summaries and evaluation in a session."""

import numpy as np
import tensorflow as tf

tf.set_random_seed(3)
ids = tf.placeholder(tf.int32, [None, 5])
labels = tf.placeholder(tf.int32, [None])
training = tf.placeholder_with_default(False, [])
with tf.device("/gpu:0"):
    table = tf.get_variable("embedding", [30, 8])
    x = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)
    x = tf.cond(training, lambda: tf.nn.dropout(x, keep_prob=0.8), lambda: x)
    logits = tf.layers.dense(x, 4)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
tf.summary.scalar("loss", loss)
merged = tf.summary.merge_all()
accuracy, update = tf.metrics.accuracy(labels, tf.argmax(logits, 1))
step = tf.train.get_or_create_global_step()
rate = tf.train.exponential_decay(0.5, step, 10, 0.9)
train = tf.train.AdagradOptimizer(rate).minimize(loss, step)
saver = tf.train.Saver()
rng = np.random.RandomState(0)
data, wanted = rng.randint(0, 30, (40, 5)), rng.randint(0, 4, 40)
config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.allow_growth = True
with tf.Session(config=config) as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    writer = tf.summary.FileWriter("logs", sess.graph)
    for i in range(6):
        part = slice(i * 8 % 40, i * 8 % 40 + 8)
        _, value, text = sess.run([train, loss, merged], {ids: data[part], labels: wanted[part], training: True})
        writer.add_summary(text, i)
        print("step", i, "loss", value)
    saver.save(sess, "model/ckpt", global_step=step)
    sess.run(update, {ids: data, labels: wanted})
    print("accuracy", sess.run(accuracy))

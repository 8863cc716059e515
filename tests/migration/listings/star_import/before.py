import tensorflow as tf

layers = tf.nn.dropout(x, keep_prob)

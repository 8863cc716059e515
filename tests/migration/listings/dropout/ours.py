import tensorflow as tf

layers = tf.nn.dropout()

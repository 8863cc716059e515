import tensorflow as tf

session_config = tf.ConfigProto()
config = tf.estimator.RunConfig(
    session_config=session_config
)

import tensorflow as tf

config = tf.ConfigProto()
with tf.Session(config=config) as sess:
    print(sess.run(cost))

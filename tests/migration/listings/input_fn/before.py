import tensorflow as tf

def train_input_fn(train_data,train_labels):  #训练输入，以numpy矩阵作为输入
  return tf.estimator.inputs.numpy_input_fn(
    x={"x":train_data},
    y=train_labels,
    batch_size=FLAGS.batch_size,
    num_epochs=None,#训练多少个epochs
    shuffle=True)

import tensorflow as tf

dataset = tf.data.Dataset.from_tensor_slices(filenames)

dataset = dataset.batch(batch_size, drop_remainder=True)
assert num_written_lines == num_actual_predict_examples

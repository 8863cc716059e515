"""tensorflow.examples: the part that is installed with TensorFlow 1.15."""

"""tensorflow.examples: what TensorFlow 1.15 installs of its tutorials."""

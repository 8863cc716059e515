"""Package path of TensorFlow 1.15 from which scripts import."""

"""Rules for TensorFlow 1.15 scripts."""

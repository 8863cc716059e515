"""A stand-in for the TensorFlow 1 adapter of Ascend: its names, signatures, checks and messages, on the CPU."""

__version__ = "v1.15.0"

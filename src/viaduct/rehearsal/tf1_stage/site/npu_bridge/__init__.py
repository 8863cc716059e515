"""A stand-in for npu_bridge, Ascend's TF Adapter for TensorFlow 1: its names, checks and messages, on the CPU."""

__version__ = "v1.15.0"

"""A stand-in for Horovod: its names, served by gloo."""

__version__ = "0.28.1"

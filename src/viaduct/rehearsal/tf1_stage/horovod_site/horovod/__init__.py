"""A stand-in for Horovod: its public names, with collectives by gloo."""

__version__ = "0.28.1"

"""A stand-in for HCCL's Python interface: ranks of this machine, carried by gloo."""

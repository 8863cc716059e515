"""A stand-in for HCCL's Python interface: ranks of this machine, which exchange data through gloo."""

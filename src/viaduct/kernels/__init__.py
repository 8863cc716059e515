"""Kernels of our own, where a profile on an NVIDIA card showed that a whole training step gains by them.

`fuse.py` puts them into a network. The files `*_kernels.py`, in Triton, and grouped.cu, in CUDA C++ for NVRTC, are what
runs on the card; the files beside them prepare and launch it. Tensors lie channels_last, and kernels see them as rows
of pixels and columns of channels. Nothing here is imported unless it is asked for: Triton comes with torch's CUDA
builds only.
"""

"""Kernels of our own, where a profile on an NVIDIA card showed that a whole training step gains by them.

`fuse.py` puts them into a network, into blocks that `parts.py` knows by their layers; `fused.py` says where they are
and takes them out. The files `*_kernels.py`, in Triton, and grouped.cu, in CUDA C++ for NVRTC, are what runs on the
card; the files beside them prepare and launch it. Tensors lie channels_last, and kernels see them as rows of pixels
and columns of channels. What needs Triton is imported only when it is asked for: it comes with torch's CUDA builds.
"""

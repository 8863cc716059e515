"""viaduct's own kernels for training on NVIDIA cards; inference.py has two for inference.

fuse.py replaces the forward pass of a network's blocks that parts.py recognises; fused.py reports these blocks and
restores them. The files `*_kernels.py` (Triton) and grouped.cu (CUDA C++, compiled by NVRTC) run on the card; other
files choose and launch them. Tensors are channels_last; kernels see them as rows of pixels and columns of channels. The
modules are imported only if kernels are used, because only torch's CUDA builds have Triton.
"""

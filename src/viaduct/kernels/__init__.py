"""Own kernels for NVIDIA cards, for those parts of a training step that a profile showed they make faster.

`fuse.py` puts them into a network, into blocks that `parts.py` finds by their layers; `fused.py` lists these blocks and
restores them. The files `*_kernels.py` (Triton) and grouped.cu (CUDA C++, compiled by NVRTC) run on the card; the other
files prepare and launch them. Tensors are channels_last; kernels see them as rows of pixels and columns of channels.
The modules are imported only where kernels are used: only torch's CUDA builds have Triton.
"""

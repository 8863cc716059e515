"""Rules for PyTorch scripts that are written for CUDA."""

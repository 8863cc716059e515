"""Rules for PyTorch scripts written for CUDA, one behaviour per file."""

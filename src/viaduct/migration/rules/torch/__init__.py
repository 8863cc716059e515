"""PyTorch for CUDA, one behaviour a file."""

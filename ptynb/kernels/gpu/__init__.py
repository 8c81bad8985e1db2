"""Kernels for CUDA, written in Triton, which is imported where they are used only."""

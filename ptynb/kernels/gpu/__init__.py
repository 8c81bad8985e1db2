"""Kernels for CUDA, written in Triton, which is imported where they are used only."""

from ptynb.private_folder import keep_code_private

keep_code_private("TRITON_CACHE_DIR")

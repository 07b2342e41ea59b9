"""Horizontal fusion: combines independent kernels into one."""

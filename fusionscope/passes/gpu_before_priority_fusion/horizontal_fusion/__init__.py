"""Horizontal fusion: kernels that do not depend on each other become one."""

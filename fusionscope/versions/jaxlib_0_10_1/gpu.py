"""The fusion passes of jaxlib 0.10.1 for GPUs: those of 0.10.2."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.versions.jaxlib_0_10_2 import gpu as newer

COMPILER = replace(newer.COMPILER, name="gpu-0.10.1", release="0.10.1")

"""The fusion passes of jaxlib 0.5.3 for GPUs."""

from __future__ import annotations

from dataclasses import replace

from fusionscope.versions.jaxlib_0_6_2 import gpu as newer

COMPILER = replace(newer.COMPILER, name="gpu-0.5.3", release="0.5.3")

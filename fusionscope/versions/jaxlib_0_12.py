"""What jaxlib 0.12 does in its own way."""

from __future__ import annotations

RELEASE = "0.12.0.1"
"""The one against whose dumps the rules were held."""

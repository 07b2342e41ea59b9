"""What jaxlib 0.4.35 does in its own way."""

from __future__ import annotations

RELEASE = "0.4.35"
"""The one against whose dumps the rules were held."""

"""What XLA of early 2023 does in its own way."""

RELEASE = "2023"
"""What the version is called, as there was no jaxlib of it."""

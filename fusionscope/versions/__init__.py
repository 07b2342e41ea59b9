"""Which version of jaxlib made a dump, by what the dump shows."""

from fusionscope.versions.recognition import Recognition, recognise

__all__ = ["Recognition", "recognise"]

"""Which compiler version made a dump, and its passes."""

"""The rules of the passes that fused for GPUs before priority fusion did."""

"""The pass that has Triton emit finished fusions instead of XLA's own emitters."""

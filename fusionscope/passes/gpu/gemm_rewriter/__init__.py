"""Products that cuBLASLt computes."""

"""fusionscope: which operations XLA fused into one kernel, and why (not)."""

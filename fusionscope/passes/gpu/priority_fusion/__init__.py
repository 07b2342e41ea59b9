"""Priority fusion: the producer whose fusion saves the most time is fused first."""

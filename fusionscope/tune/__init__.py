"""The search for a faster plan: what to try, in which order, and what to keep."""

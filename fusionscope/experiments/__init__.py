"""A pair becomes questions to the compiler: what has to change for it to be fused?"""

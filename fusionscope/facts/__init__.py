"""What all findings speak of: kernels, pairs, times, and places in the program."""

"""A dump that can be shown to others: without names, paths and constants of the program."""

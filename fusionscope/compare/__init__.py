"""The differences between two files, two stages or two dumps."""

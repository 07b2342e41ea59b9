"""The operating system: files, child processes, and text that is safe for a terminal."""

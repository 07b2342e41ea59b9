"""What lies outside: files, child processes, and text that is fit for a terminal."""

"""Changes that may help a program, and the result of trying each."""

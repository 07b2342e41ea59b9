"""From a program to a dump directory, compiled in a child process."""

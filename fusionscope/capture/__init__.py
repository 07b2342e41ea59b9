"""Turns a program into a dump directory, by compiling it in a child process."""

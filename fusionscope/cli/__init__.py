"""One file per command; each parses options, calls one function and hands its result to report."""

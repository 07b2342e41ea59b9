"""One program in several versions, compiled and run side by side."""

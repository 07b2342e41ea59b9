"""From a changed plan to what the real compiler makes of it."""

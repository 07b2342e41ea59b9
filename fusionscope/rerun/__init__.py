"""Makes the real compiler take a changed plan, and examines the result."""

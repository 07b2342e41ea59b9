"""An explanation becomes something to do: changes that were tried, and what came of them."""

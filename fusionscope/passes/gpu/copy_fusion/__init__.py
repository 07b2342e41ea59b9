"""Makes copies of a fusion's results further outputs of the fusion."""

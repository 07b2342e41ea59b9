"""The fusion merger: a fusion goes into all of its users, or stays."""

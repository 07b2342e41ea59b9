"""Results become something to look at; nothing is computed here."""

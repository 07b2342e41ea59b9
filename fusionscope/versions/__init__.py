"""Which version of the compiler made a dump, and what its passes are."""

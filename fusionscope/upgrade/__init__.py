"""What an upgrade of the compiler changed: a program compiled with two releases, and compared."""

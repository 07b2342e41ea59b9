"""What is worth saying about a module: one folder for each finding."""

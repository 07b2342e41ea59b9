"""What is known of the fusion passes for TPUs, whose code is closed."""

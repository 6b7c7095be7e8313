"""What large hospitals and long simulations cost."""

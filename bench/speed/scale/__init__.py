"""What large hospitals and long simulations cost, and a coordinator that two machines share."""

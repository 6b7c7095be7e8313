"""LG-FedAvg's experiments on public data: digits at many devices, and fair representations of Adult."""

"""FedDAR and what it is compared with, one file for each recipe that a study may name (docs/design/recipes.md)."""

__all__ = ["fedavg", "feddar_linear", "feddar_sa", "feddar_wa", "local_heads"]

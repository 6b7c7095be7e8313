"""The shared encoder: its layers, its image networks, its weights as one vector."""

__all__ = ["draws", "encoder", "layers", "orthonormal_step", "random_features"]

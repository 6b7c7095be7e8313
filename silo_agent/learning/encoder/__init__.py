"""The shared encoder: its layers, its image networks, its weights as one vector."""

__all__ = ["beside", "draws", "encoder", "layers", "orthonormal"]

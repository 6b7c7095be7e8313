"""The shared encoder: its layers, its image networks, its weights as one vector."""

__all__ = ["beside", "encoder", "layers", "orthonormal"]

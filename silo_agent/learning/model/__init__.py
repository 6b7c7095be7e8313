"""The shared model of a study: its parts, its file, where it starts, and the parts that a recipe keeps at the silo."""

__all__ = ["files", "kept_parts", "shared", "start"]

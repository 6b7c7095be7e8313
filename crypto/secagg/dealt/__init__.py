"""What a silo deals in an attempt: the shares note, and the boxes in it, one for each holder."""

__all__ = ["boxes", "bundles"]

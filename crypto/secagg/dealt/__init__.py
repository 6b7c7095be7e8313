"""What a silo deals in an attempt: the shares note, the boxes in it, one for each holder, and complaints about them."""

__all__ = ["boxes", "bundles", "complaints"]

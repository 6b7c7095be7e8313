"""What a silo deals in an attempt: shares, the note with a box of them for each holder, and complaints about these."""

__all__ = ["boxes", "bundles", "complaints", "shamir"]

"""What a silo deals in an attempt: shares of its secrets, the note with a slice for each holder, and complaints."""

__all__ = ["attempt_secrets", "boxes", "bundles", "complaints", "shamir", "share_bundle", "slices"]

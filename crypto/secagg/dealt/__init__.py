"""What a silo deals in an attempt: shares of its secrets, the note with a box for each holder, and complaints."""

__all__ = ["attempt_secrets", "boxes", "bundles", "complaints", "shamir"]

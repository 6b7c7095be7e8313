"""The issuing authority over HTTPS: a subset of Enrolment over Secure Transport (RFC 7030), and its lists.

`est` answers requests; `server` listens; `cli` is `fedward-authority serve`.
"""

__all__ = ["cli"]

"""`fedward-silo preflight`: everything that could keep this hospital from a study, looked at before the study begins.

`public_checks` and `dry_round` hold the checks that read no record, and `private_checks` those that do. A report to
share runs only the former, so nothing in it, its exit code and its time included, can follow from records.
"""

__all__ = ["command"]

"""`fedward-silo preflight`: everything that could keep this hospital from a study, looked at before the study begins.

`shared` and `dry` hold the checks that read no record, and `inside` those that do. A report to share runs only the
former, so nothing in it, its exit code and its time included, can follow from records.
"""

__all__ = ["command"]

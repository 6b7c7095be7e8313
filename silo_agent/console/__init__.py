"""The hospital's console: on loopback, for people inside, by a one-time link from `fedward-silo console`.

Guarantees: it decides nothing that the commands do not decide, and writes nothing but what `study approve`, `decline`
and `withdraw-approval` write. It opens no key: an approver signs elsewhere, and hands the signature in.
"""

__all__ = ["serving"]

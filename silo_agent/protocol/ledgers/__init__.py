"""What silos say of one another's ledgers and of the coordinator's audit log: cosignatures, asked for and given."""

__all__ = ["audit_log", "cosigning", "known_studies", "witnessing"]

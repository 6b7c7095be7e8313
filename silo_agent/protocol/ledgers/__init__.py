"""What silos say of one another"s ledgers: asking for cosignatures, and giving them."""

__all__ = ["cosigning", "known_studies", "witnessing"]

"""What others see of a running coordinator beside its answers: figures that are taken when somebody asks for them."""

__all__ = ["current", "round_traces"]

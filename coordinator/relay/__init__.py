"""What silos send and what they fetch, on its way through the coordinator: in chunks, checked, never understood."""

__all__ = ["handing_out", "intake"]

"""Second-order heads (FedDAR Eq. 8): per-domain sums of curvature and gradient, and the solver on the opened sums."""

__all__ = ["calibration", "domain_weights", "evidence", "hierarchical", "logits", "newton", "sums"]

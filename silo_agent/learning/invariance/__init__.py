"""Training that compares environments (`data.environment`): its state, its batches, and the trainer for public data.

The terms themselves stand in `learning.terms`. The trainer of the uploaded part clips nothing and adds no noise, so it
refuses every study whose data are not declared public.
"""

__all__ = ["mixed", "plain", "steps"]

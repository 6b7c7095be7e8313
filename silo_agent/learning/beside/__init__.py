"""What is trained or chosen beside a personal model, stays in its file and goes on from round to round.

All of it reads the silo's records without noise, so it is as private as they are.
"""

__all__ = ["companions", "guesser", "resumable"]

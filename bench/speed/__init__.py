"""What steps, rounds, sums, commands and revocations take."""

"""Private studies of real patients beside what else could be done with their records."""

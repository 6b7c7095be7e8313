"""silo_agent.learning.heads.sums."""

"""silo_agent.learning.private."""

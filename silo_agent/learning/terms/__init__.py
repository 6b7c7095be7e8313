"""silo_agent.learning.terms."""

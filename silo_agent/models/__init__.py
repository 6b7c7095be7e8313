"""silo_agent.models."""

"""silo_agent.protocol."""

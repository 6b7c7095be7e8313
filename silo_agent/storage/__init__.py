"""silo_agent.storage."""

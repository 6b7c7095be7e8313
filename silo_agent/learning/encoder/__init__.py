"""silo_agent.learning.encoder.encoder."""

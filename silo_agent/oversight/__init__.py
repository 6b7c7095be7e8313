"""silo_agent.oversight."""

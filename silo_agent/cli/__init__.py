"""silo_agent.cli.main."""

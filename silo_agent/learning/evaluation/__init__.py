"""silo_agent.learning.evaluation.evaluation."""

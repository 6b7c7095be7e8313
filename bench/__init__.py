"""Measurements, not installed. Each script prints wanted and measured figures, and fails if a wanted one is missed."""

"""Measurements, not installed: each script prints wanted and measured, and fails where a wanted figure is missed."""

"""Forecasts of `fedward-silo plan` against what the same studies came to: 40 studies, all laws and data sets."""

"""Policies and studies, decisions, the privacy accountant and the durable ledger. Knows no network and no models."""

"""Policies and studies, decisions, the privacy accountant and the durable ledger. It knows no network and no models."""

"""Cosigners that believe every charge, for tests of everything else. `policies.ledger.judging` has tests of its own."""

from __future__ import annotations

from coordinator.cosigning import KnownLedgers
from silo_agent.protocol.ledgers.witnessing import Witness


class NoStudies:
    """Knows of no study."""

    def studies_of(self, _silo):
        return [], []

    def summed(self, _silo):
        return []


class BelievingHub(KnownLedgers):
    """The coordinator's half."""

    def __init__(self, *given, **named):
        super().__init__(*given, studies=NoStudies(), **named)

    def _judge(self, *_, **__):
        pass


class BelievingWitness(Witness):
    """A silo's half."""

    def __init__(self, state, credential, **named):
        super().__init__(state, credential, NoStudies(), **named)

    def _judge(self, *_, **__):
        pass


def approved(_study, _policy):
    """A hospital that lets every study use its data."""

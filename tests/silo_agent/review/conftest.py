import pytest

from silo_agent.config import AgentConfig
from silo_agent.storage.folders import StateFolder
from support.asked import asked_hospital
from support.studies import tiny_study


@pytest.fixture
def settings(quick_path, homes):
    """The configuration of a hospital that the study tiny has asked."""
    return AgentConfig.load(asked_hospital(quick_path, homes["north"], tiny_study()))


@pytest.fixture
def folder(settings):
    return StateFolder(settings.state)

"""A silent log."""

import pytest
import structlog


@pytest.fixture(autouse=True)
def _silent_log():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    yield
    structlog.reset_defaults()

"""What the tests of schedules share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged, from the level INFO on."""
    caplog.set_level(logging.INFO, "limpyd-jobs")
    return caplog

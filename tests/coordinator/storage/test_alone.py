"""One coordinator for a folder."""

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.lease.turns import serve
from coordinator.storage.alone import FolderBusyError, alone_in


def test_a_second_one_is_refused_until_the_first_leaves(tmp_path):
    with (
        alone_in(tmp_path),
        pytest.raises(FolderBusyError, match="used by another coordinator; stop"),
        alone_in(tmp_path),
    ):
        pass
    with alone_in(tmp_path):
        pass


def test_a_coordinator_does_not_start_beside_another(tmp_path, authority):
    home = authority.credential("coordinator", "beside")
    files = {name: home / f"{name}.pem" for name in ("certificate", "key", "authority")}
    with alone_in(tmp_path), pytest.raises(FolderBusyError):
        serve(CoordinatorConfig(port=0, metrics_port=0, data=tmp_path, **files), None)

"""Seeds on a cluster of Dask workers."""

from functools import partial

import pytest
from distributed import LocalCluster
from distributed.security import Security

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.engines import cluster
from deploy.local.simulate.engines.cluster import FILES, DaskCluster
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.many import each_seed
from support.simulated import SOURCE, Dying, Falling, failing, stumbling
from support.studies import tiny_study


def refused(*given):
    with pytest.raises(SimulationError) as caught:
        DaskCluster(2, *given)
    return str(caught.value)


def test_a_cluster_is_talked_to_by_tls_alone_and_all_that_lacks_is_told_at_once(tmp_path, monkeypatch):
    assert refused("tcp://here:8786") == (
        "--scheduler tcp://here:8786 would be talked to in the clear; give one that begins with tls://;"
        " --scheduler talks TLS alone: give --tls, a folder with ca.pem, cert.pem, key.pem"
    )
    (tmp_path / "ca.pem").touch()
    assert refused("tls://here:8786", tmp_path).endswith(f"{tmp_path} lacks cert.pem, key.pem")
    assert refused(None, tmp_path).startswith("--tls is for a cluster that --scheduler names")
    for name in FILES:
        (tmp_path / name).touch()
    DaskCluster(2, "tls://here:8786", tmp_path)
    monkeypatch.setattr(cluster, "find_spec", lambda _: None)
    assert refused() == "--engine dask needs distributed; install requirements-research.txt of the release"


@pytest.mark.slow
def test_three_workers_of_which_one_is_killed_give_what_one_process_gives(tmp_path):
    """To the bit, and each seed once."""
    seeds, heard = (4, 2, 9, 7, 1), []
    run = Dying(tmp_path, {2: 1})
    found = each_seed(run, tiny_study(), SOURCE, seeds, engine=DaskCluster(3), done=lambda: heard.append(1))
    alone = each_seed(Dying(tmp_path, {}), tiny_study(), SOURCE, seeds)
    assert [one.exact for one in found] == [one.exact for one in alone]
    assert len(heard) == len(seeds)
    assert (tmp_path / "2 0").exists()


@pytest.mark.slow
def test_a_whole_study_is_the_same_on_a_cluster_and_what_fails_is_told(tmp_path):
    study, seeds = tiny_study(), (1, 2)
    there = each_seed(simulate, study, SOURCE, seeds, engine=DaskCluster(2))
    here = each_seed(simulate, study, SOURCE, seeds)
    assert [run.model.digest for run in there] == [run.model.digest for run in here]
    with pytest.raises(ValueError, match=r"1|2"):
        each_seed(failing, study, SOURCE, seeds, engine=DaskCluster(1))
    with pytest.raises(SimulationError, match="fewer --workers"):
        each_seed(Dying(tmp_path, {1: 9}), study, SOURCE, (1,), engine=DaskCluster(1))


@pytest.mark.campaign
@pytest.mark.slow
def test_the_silos_of_a_seed_are_at_all_workers_and_begin_again_where_one_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "memory_folder", lambda: tmp_path)
    (tmp_path / "marks").mkdir()
    engine = DaskCluster(3)
    (found,) = each_seed(Falling(tmp_path / "marks", {1}), tiny_study(), SOURCE, (1,), engine=engine)
    (alone,) = each_seed(simulate, tiny_study(), SOURCE, (1,))
    assert (found.model.digest, found.exact) == (alone.model.digest, alone.exact)
    assert [path.name for path in (tmp_path / "marks").iterdir()] == ["silos of 1"]
    assert not list(tmp_path.glob("fedward-*")), "no file of the lost worker is left"
    with pytest.raises(ValueError, match="no such silo"):
        each_seed(stumbling, tiny_study(), SOURCE, (1,), engine=engine)
    with pytest.raises(RuntimeError, match="nowhere"):  # what founding a silo raises is no lost worker either
        each_seed(partial(simulate, device="nowhere"), tiny_study(), SOURCE, (1,), engine=engine)


@pytest.mark.slow
def test_a_cluster_that_runs_elsewhere_is_reached_by_the_files_of_a_member(tmp_path):
    keys = Security.temporary()
    for name, content in zip(FILES, (keys.tls_ca_file, keys.tls_client_cert, keys.tls_client_key), strict=True):
        (tmp_path / name).write_text(content)
    paths = [str(tmp_path / name) for name in FILES]
    own = dict(zip(("cert", "key"), paths[1:], strict=True))
    roles = {f"tls_{role}_{kind}": path for role in ("scheduler", "worker", "client") for kind, path in own.items()}
    security = Security(tls_ca_file=paths[0], require_encryption=True, **roles)
    started = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "protocol": "tls://"}
    with LocalCluster(security=security, **started) as there:
        engine = DaskCluster(1, there.scheduler_address, tmp_path)
        found = each_seed(Dying(tmp_path, {}), tiny_study(), SOURCE, (1, 2), engine=engine)
    alone = each_seed(Dying(tmp_path, {}), tiny_study(), SOURCE, (1, 2))
    assert [one.exact for one in found] == [one.exact for one in alone]

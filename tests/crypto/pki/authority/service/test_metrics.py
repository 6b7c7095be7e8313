"""The issuing authority's metrics: what it answered, under labels that no caller can make up."""

from __future__ import annotations

from http import HTTPStatus

from crypto.pki.authority.service.est import EST, Est
from crypto.pki.authority.service.metrics import AuthorityMetrics

FIRST = {"path": f"{EST}/simpleenroll", "status": "400"}


def asked(est, method, path):
    said = []
    list(est({"REQUEST_METHOD": method, "PATH_INFO": path}, lambda status, _: said.append(status)))
    return said[0]


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"fedward_authority_{name}", labels)


def test_answers_are_counted_by_path_and_status_and_strange_paths_are_one(online):
    est = Est(online.authority)
    assert asked(est, "GET", "/crls.pem") == "200 OK"
    assert asked(est, "POST", f"{EST}/simpleenroll").startswith("401")
    for number in range(3):
        assert asked(est, "GET", f"/made-up-{number}").startswith("404")
    assert value(est.metrics, "requests_total", path="/crls.pem", status="200") == 1
    assert value(est.metrics, "requests_total", path=f"{EST}/simpleenroll", status="401") == 1
    assert value(est.metrics, "requests_total", path="other", status="404") == 3
    assert value(est.metrics, "certified_total") == 0


def test_two_authorities_in_one_process_do_not_share_them():
    one, other = AuthorityMetrics(["/a"]), AuthorityMetrics(["/a"])
    one.answered("/a", HTTPStatus.OK)
    assert value(one, "requests_total", path="/a", status="200") == 1
    assert value(other, "requests_total", path="/a", status="200") is None

"""The client for asyncio: the same calls with the same answers, and no call blocks another task."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from coordinator.client import AsyncCoordinatorClient, CoordinatorClient
from coordinator.config import OperatorConfig
from coordinator.errors import OperatorError
from crypto.authorship import sign_study
from support.people import author_in
from support.small_cohort import write_yaml
from support.studies import tiny_study


@pytest.fixture
def config(server, operator_folder, tmp_path):
    files = {name: str(operator_folder / f"{name}.pem") for name in ("certificate", "key", "authority")}
    return write_yaml(tmp_path / "operator.yaml", {"coordinator": f"127.0.0.1:{server.port}", **files})


def calls(kind):
    found = inspect.getmembers(kind, callable)
    return {name: member for name, member in found if not name.startswith("_") and name not in ("of", "changes")}


def test_both_clients_have_the_same_calls_with_the_same_words():
    plain, later = calls(CoordinatorClient), calls(AsyncCoordinatorClient)
    assert set(plain) == set(later) >= {"submit", "start", "status", "results", "follow", "audit"}
    for name, call in plain.items():
        here, there = inspect.signature(call), inspect.signature(later[name])
        assert list(here.parameters.values()) == list(there.parameters.values()), name
    assert {name for name, call in later.items() if not inspect.iscoroutinefunction(call)} == {"follow"}


def test_a_study_is_created_and_followed_to_its_end(config, authority):
    study = tiny_study(name="awaited")

    async def story():
        async with await AsyncCoordinatorClient.of(config) as client:
            signed = sign_study(author_in(authority), study.digest, study.purpose)
            assert await client.create(study.canonical(), signed) == study.digest
            await client.start("awaited")
            seen = []
            async for status in client.follow("awaited", seconds=0.01):
                seen.append(status.state)
                if len(seen) == 1:
                    await client.abort("awaited", "enough")
            with pytest.raises(OperatorError, match="publishes nothing"):
                await client.results("awaited")
            return seen, [one.name for one in await client.statuses()], (await client.audit()).entries[-1].action

    seen, names, last = asyncio.run(story())
    assert seen == ["running", "aborted"]
    assert "awaited" in names
    assert last == "abort"


def test_a_call_blocks_no_other_task(config, monkeypatch):
    waiting = []

    async def story():
        async with await AsyncCoordinatorClient.of(config) as client:
            go_on = asyncio.Event()
            loop = asyncio.get_running_loop()

            def slow(_self, study):
                waiting.append(study)
                loop.call_soon_threadsafe(go_on.set)
                while len(waiting) < 2:
                    pass

            monkeypatch.setattr(CoordinatorClient, "status", slow)
            asking = asyncio.create_task(client.status("any"))
            await asyncio.wait_for(go_on.wait(), 60)
            waiting.append("this task went on meanwhile")
            await asking

    asyncio.run(story())
    assert waiting == ["any", "this task went on meanwhile"]


def test_the_plain_client_is_opened_by_a_file_and_closed_by_its_block(config):
    with CoordinatorClient.of(str(config)) as client:
        assert isinstance(client.statuses(), list)
    with pytest.raises(ValueError, match="closed"):
        client.statuses()
    assert OperatorConfig.load(config).coordinator

"""Which of the hospital's data a study may use, as people approved it while the agent runs.

The policy may also have a rule for it (`approved_data`), which an approval overrides.

Guarantees: an approval is on the disk before the command returns, and the agent reads it when it is asked about a
study. It names a study by its name or by its digest, and data by their name in agent.yaml.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.durable import write_whole
from silo_agent.config import AgentConfig, SqlSource
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

_SHORTEST = 12
"""Digits of a digest that name a study, as in logs and metrics."""
_DIGEST = re.compile(rf"[0-9a-f]{{{_SHORTEST},}}")


def approve(folder: StateFolder, study: str, data: str) -> None:
    """Let the study use the data of that name, from its next offer on. Replaces an earlier approval of the study."""
    found = {**_read(folder), study: data}
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder.approvals, json.dumps(found, sort_keys=True, indent=1).encode())


def approved(folder: StateFolder, name: str, digest: str) -> str | None:
    """Return the name of the data that the study may use; None if nobody approved any. Raises `StateError`."""
    found = _read(folder)
    by_digest = next((data for key, data in found.items() if len(key) >= _SHORTEST and digest.startswith(key)), None)
    # What was approved by its digest is one study, and no other gets its data by a name that looks like that digest.
    return by_digest or (None if _DIGEST.fullmatch(name) else found.get(name))


def source_of(config: AgentConfig, study: Study, policy: Policy) -> Path | SqlSource | None:
    """Where a study's records are: by its name in agent.yaml, else by an approval, else by the policy's rule.

    Raises `StateError`, also if the rule gives a study several data.
    """
    own = config.source(study.name)
    if own is not None:
        return own
    name = approved(StateFolder(config.state), study.name, study.digest)
    if name is not None:
        return config.source(name)
    by_rule = policy.data_for(study.name)
    if len(by_rule) > 1:
        msg = (
            f"approved_data of the policy gives the study {study.name!r} several data ({', '.join(by_rule)}); say"
            f" which: fedward-silo study approve {study.name} --data NAME"
        )
        raise StateError(msg)
    return config.source(by_rule[0]) if by_rule else None


def no_data(config: str, study: str, named: str) -> str:
    """What to say if nothing names a study's records; `named` lists the data that are named."""
    return (
        f"{config} names no data for the study {study!r}; add it under data or databases and start the agent anew, or"
        f" let it use data that are named there ({named}): fedward-silo study approve {study} --data NAME"
    )


def _read(folder: StateFolder) -> dict[str, str]:
    try:
        found = json.loads(folder.approvals.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        msg = f"{folder.approvals.name} in the state folder cannot be read; delete it, and approve the studies again"
        raise StateError(msg)
    return found

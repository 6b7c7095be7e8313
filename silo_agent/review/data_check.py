"""Which records of a study's data would be left out, as the agent's own reader finds it. Charges nothing.

What is found quotes patients' values and counts their records, so it stays inside the hospital.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from policies.documents.study import Study
from policies.file_fit import check_file
from policies.refusals import Refused
from silo_agent.config import AgentConfig, SqlSource
from silo_agent.data.errors import DataAbsentError, DataError, Faults, RecordError
from silo_agent.data.reader import Reading, read_records
from silo_agent.data.table import Written
from silo_agent.oversight.approval import policy_of_agent
from silo_agent.storage.approvals import looked_at
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import withdrawn_of


def checked(
    settings: AgentConfig,
    study: Study,
    data: str | None,
    limit: int,
    seen: Callable[[int], object] = lambda _: None,
) -> tuple[Path | SqlSource, Reading]:
    """Read what the agent would read for a study; `data` names it if the study has none yet.

    At most `limit` faults are listed, and all are counted. `seen` hears how many more rows were read. Raises
    `StateError` if the data would wait, or if the agent would refuse the study.
    """
    policy = policy_of_agent(StateFolder(settings.state).ledger, settings.policy)
    path = looked_at(settings, study, policy, data)
    try:
        check_file(policy, study)
        reading = read_records(
            path,
            study.data,
            policy.data_set.identified_by,
            faults=Faults(limit),
            written=Written.of(policy),
            withdrawn=withdrawn_of(StateFolder(settings.state), settings.key_holder),
            seen=seen,
        )
    except DataAbsentError as error:
        msg = f"{study.name} would wait for its data: {error}"
        raise StateError(msg) from None
    except (DataError, Refused) as error:
        msg = f"the agent would refuse {study.name}: {error}"
        raise StateError(msg) from None
    except RecordError as error:
        msg = (
            f"reading the data of {study.name} fails on the records, so the agent would send noise alone: {error.found}"
        )
        raise StateError(msg) from None
    return path, reading

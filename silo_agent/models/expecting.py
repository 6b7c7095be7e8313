"""What a hospital's public file says for a forecast.

Guarantees that only records are read that the hospital's policy declares public, and its ledger with it, for good: what
is seen of private records and then decides about a study would be a release that nobody charged.
"""

from __future__ import annotations

from pathlib import Path

from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.ledger.ledger import Genesis, require_match
from silo_agent.data.reader import read_records
from silo_agent.data.table import Written
from silo_agent.forecast.assumptions import KnownData
from silo_agent.forecast.public import known_of
from silo_agent.learning.errors import LearningError


def known_of_file(study: Study, policy: Policy, bound: Genesis, file: Path) -> KnownData:
    """What the hospital's own file says, of which one is expected at every silo.

    `bound` is the first entry of the ledger. Raises `LearningError` before the file is opened if the data are not
    public, and if no record fits; `LedgerMismatchError` if policy and ledger differ; `DataError` if the file cannot be
    read.
    """
    if not policy.data_set.public:
        msg = (
            "--data: the policy's data_set.public is false, and a forecast never reads private records; leave --data"
            " out, and give --patients, --prevalence and --effect, or --after with an earlier study"
        )
        raise LearningError(msg)
    require_match("the ledger", bound, Genesis.of(policy))
    records = read_records(file, study.data, policy.data_set.identified_by, written=Written.of(policy)).records
    if not len(records):
        msg = f"--data: no record of {file.name} fits the study; see `fedward-silo data check`"
        raise LearningError(msg)
    return known_of(study, records, policy.data_set.holdout)

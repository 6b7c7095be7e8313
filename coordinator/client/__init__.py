"""A person's way to the coordinator from Python: the calls of `fedward-coordinator study`, with values as answers.

    from coordinator.client import CoordinatorClient

    with CoordinatorClient.of("operator.yaml") as client:
        study = client.submit("study.yaml")
        client.start(study)
        for status in client.follow(study):
            print(status.phase, status.waiting_for)
        print(client.results(study).figures)

`AsyncCoordinatorClient` has the same calls for programs that are written with asyncio. docs/client.md has more.
"""

from coordinator.client.asynchronous import AsyncCoordinatorClient
from coordinator.client.plain import CoordinatorClient

__all__ = ["AsyncCoordinatorClient", "CoordinatorClient", "plain", "signing"]

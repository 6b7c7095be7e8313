#!/bin/sh
# Install, upgrade or roll back a hospital's agent: own user, own virtual environment, systemd unit. --help tells more.
ROLE=silo
SETTINGS=agent.yaml

settings() {
    cat <<'SETTINGS'
coordinator: hub.example.org:7443   # where the consortium's coordinator listens
certificate: certificate.pem        # all of these are looked for beside this file
key: key.pem
authority: authority.pem
policy: policy.yaml
state: /var/lib/fedward-silo        # ledger, models, outbox
data: {}                            # name of a study: its file or folder
metrics_port: 9444
SETTINGS
}

. "$(dirname "$0")/install-common.sh"

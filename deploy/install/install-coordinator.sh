#!/bin/sh
# Install, upgrade or roll back the coordinator: own user, own virtual environment, systemd unit. --help tells more.
ROLE=coordinator
SETTINGS=coordinator.yaml

settings() {
    cat <<'SETTINGS'
host: 0.0.0.0
port: 7443
metrics_port: 9443                  # on loopback unless metrics_host says otherwise
certificate: certificate.pem        # these are looked for beside this file
key: key.pem
authority: authority.pem
data: /var/lib/fedward-coordinator  # database and spool; room for two uploads per silo
SETTINGS
}

. "$(dirname "$0")/install-common.sh"

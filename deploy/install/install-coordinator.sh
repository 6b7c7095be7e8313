#!/usr/bin/env bash
# Installs the coordinator as a service: its own user, its own virtual environment, a hardened systemd unit.
# Run it again with a newer release to upgrade: certificates, ledger and state are not touched.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
install_role coordinator "fedward-coordinator fedward-authority" coordinator.yaml "$@"

# What install-silo.sh and install-coordinator.sh share. They set ROLE and source this file; it never runs by itself.
# shellcheck shell=sh
set -eu
umask 022

HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=
DRY=
FINGERPRINT=
UNVERIFIED=
ROLL_BACK=
PYTHON=python3.11
REQUIREMENTS=requirements-$ROLE.txt

usage() {
    cat <<USAGE
$(basename "$0"): install or upgrade the $ROLE from this folder, or roll it back.

  --fingerprint HEX  the release key's fingerprint, from whoever runs the consortium; the release is verified first
  --unverified       install without it: only for a release that you have made yourself
  --cuda             take PyTorch for NVIDIA GPUs (silo only)
  --python PATH      Python 3.11 or later (default: python3.11)
  --root DIR         install below DIR, without user and systemd: for images and for trying
  --roll-back        go back to the version before; settings, keys, ledger and state stay
  --dry-run          print what would be done, and do nothing
USAGE
}

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

run() {
    if [ -n "$DRY" ]; then
        echo "+ $*"
    else
        "$@"
    fi
}

while [ $# -gt 0 ]; do
    case $1 in
        --fingerprint) [ $# -ge 2 ] || fail "--fingerprint needs a value"; FINGERPRINT=$2; shift ;;
        --python) [ $# -ge 2 ] || fail "--python needs a value"; PYTHON=$2; shift ;;
        --root) [ $# -ge 2 ] || fail "--root needs a value"; ROOT=${2%/}; shift ;;
        --unverified) UNVERIFIED=yes ;;
        --cuda) REQUIREMENTS=requirements-$ROLE-cuda.txt ;;
        --roll-back) ROLL_BACK=yes ;;
        --dry-run) DRY=yes ;;
        --help | -h) usage; exit 0 ;;
        *) usage >&2; fail "unknown option $1" ;;
    esac
    shift
done

USER_NAME=fedward-$ROLE
UNIT=fedward-$ROLE.service
HOME_DIR=$ROOT/opt/fedward/$ROLE
CONFIG_DIR=$ROOT/etc/fedward/$ROLE
STATE_DIR=$ROOT/var/lib/fedward-$ROLE
UNIT_DIR=$ROOT/etc/systemd/system
BIN_DIR=$ROOT/usr/local/bin

# Only the real system has our user and systemd.
on_system() {
    [ -z "$ROOT" ]
}

owned() { # MODE FOLDER: a folder of the role's own user
    run mkdir -p "$2"
    run chmod "$1" "$2"
    if on_system; then run chown "$USER_NAME:$USER_NAME" "$2"; fi
}

# A link is replaced in one step, so that no start ever finds none.
point() { # TARGET LINK
    run ln -sfn "$1" "$2.new"
    run mv -T "$2.new" "$2"
}

restart_if_running() {
    if on_system && { [ -n "$DRY" ] || systemctl is-active --quiet "$UNIT"; }; then run systemctl restart "$UNIT"; fi
}

verify_release() {
    [ -z "$UNVERIFIED" ] || return 0
    [ -n "$FINGERPRINT" ] || fail "give --fingerprint, the release key's, which you have from whoever runs the consortium"
    wanted=$(printf %s "$FINGERPRINT" | tr -d ': ' | tr 'A-F' 'a-f')
    found=$(openssl pkey -pubin -in "$HERE/fedward-release.pem" -outform DER | sha256sum | cut -d' ' -f1)
    [ "$wanted" = "$found" ] || fail "fedward-release.pem has the fingerprint $found, not $wanted; do not install this"
    openssl dgst -sha256 -verify "$HERE/fedward-release.pem" -signature "$HERE/SHA256SUMS.sig" "$HERE/SHA256SUMS" \
        >/dev/null || fail "SHA256SUMS is not signed by this key; fetch the release again"
    (cd "$HERE" && sha256sum --check --quiet SHA256SUMS) || fail "files are not as they were signed; fetch the release again"
}

roll_back() {
    [ -L "$HOME_DIR/previous" ] || fail "there is no version before this one in $HOME_DIR"
    before=$(readlink "$HOME_DIR/previous")
    now=$(readlink "$HOME_DIR/current")
    [ -x "$HOME_DIR/$before/bin/python" ] || fail "$HOME_DIR/$before is incomplete; install that version again"
    point "$before" "$HOME_DIR/current"
    point "$now" "$HOME_DIR/previous"
    restart_if_running
    echo "$ROLE: went back from $now to $before"
}

if on_system && [ -z "$DRY" ] && [ "$(id -u)" -ne 0 ]; then fail "run it as root, or with --root DIR or --dry-run"; fi

if [ -n "$ROLL_BACK" ]; then
    roll_back
    exit 0
fi

verify_release
[ -f "$HERE/$REQUIREMENTS" ] || fail "there is no $REQUIREMENTS beside this script; run it from a release's folder"
VERSION=$(sed -n 's/^fedward\[[^]]*\]==\([^ ]*\) .*/\1/p' "$HERE/$REQUIREMENTS")
[ -n "$VERSION" ] || fail "$REQUIREMENTS names no version of fedward; fetch the release again"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is not Python 3.11 or later; install one and give it with --python"

if on_system && ! id "$USER_NAME" >/dev/null 2>&1; then
    run useradd --system --home-dir "$STATE_DIR" --no-create-home --shell /usr/sbin/nologin "$USER_NAME"
fi
run mkdir -p "$HOME_DIR" "$UNIT_DIR" "$BIN_DIR"
run mkdir -p "$ROOT/etc/fedward"
owned 0700 "$CONFIG_DIR"
owned 0700 "$STATE_DIR"

# A version is complete or not there: its folder gets its mark last.
PLACE=$HOME_DIR/$VERSION
if [ -f "$PLACE/.complete" ] && cmp -s "$PLACE/.complete" "$HERE/$REQUIREMENTS"; then
    echo "$ROLE $VERSION is installed already"
else
    run rm -rf "$PLACE"
    run "$PYTHON" -m venv "$PLACE"
    run "$PLACE/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r "$HERE/$REQUIREMENTS"
    run cp "$HERE/$REQUIREMENTS" "$PLACE/.complete"
fi
if [ -L "$HOME_DIR/current" ] && [ "$(readlink "$HOME_DIR/current")" != "$VERSION" ]; then
    point "$(readlink "$HOME_DIR/current")" "$HOME_DIR/previous"
fi
CHANGED=yes
if [ -L "$HOME_DIR/current" ] && [ "$(readlink "$HOME_DIR/current")" = "$VERSION" ]; then CHANGED=; fi
point "$VERSION" "$HOME_DIR/current"
point "/opt/fedward/$ROLE/current/bin/fedward-$ROLE" "$BIN_DIR/fedward-$ROLE"
run install -m 0644 "$HERE/$UNIT" "$UNIT_DIR/$UNIT"
if [ ! -e "$CONFIG_DIR/$SETTINGS" ]; then
    if [ -n "$DRY" ]; then
        echo "+ write $CONFIG_DIR/$SETTINGS"
    else
        settings >"$CONFIG_DIR/$SETTINGS"
        chmod 0600 "$CONFIG_DIR/$SETTINGS"
        if on_system; then chown "$USER_NAME:$USER_NAME" "$CONFIG_DIR/$SETTINGS"; fi
    fi
fi
if on_system; then
    run systemctl daemon-reload
    run systemctl enable --quiet "$UNIT"
fi
if [ -n "$CHANGED" ]; then restart_if_running; fi
if [ -n "$DRY" ]; then
    echo "nothing was done"
    exit 0
fi
echo "$ROLE $VERSION is installed. Settings: $CONFIG_DIR/$SETTINGS. Start: systemctl start fedward-$ROLE"

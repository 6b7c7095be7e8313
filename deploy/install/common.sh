# Shared by install-silo.sh and install-coordinator.sh: `install_role ROLE PROGRAMS CONFIG "$@"`.
# Nothing is half done: a version stands in a folder of its own, and one rename makes it the current one.

# The service's user must read what root installs, also where root's own umask is 077.
umask 022

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
act() { if [ "$dry" = yes ]; then say "would run: $*"; else "$@"; fi; }

usage() {
  say "usage: $(basename "$0") --fingerprint HEX [--cuda] [--packages FOLDER] [--python PROGRAM] [--root FOLDER] [--dry-run]"
  say "       $(basename "$0") --roll-back [--root FOLDER] [--dry-run]"
  say "  --fingerprint HEX  of the release key, from whoever runs the consortium; the release is verified with it"
  say "  --unverified       do without: only for a release that you have made yourself"
  say "  --release FOLDER   what \`make release\` wrote, by default the script's own folder"
  say "  --cuda             PyTorch for NVIDIA GPUs (silo only)"
  say "  --packages FOLDER  install from a folder that \`pip download\` filled, and ask no index"
  say "  --python PROGRAM   Python 3.11 or newer, by default python3"
  say "  --root FOLDER      install below this folder, without a user and without systemd (for images and tests)"
  say "  --roll-back        make the version before the current one again; nothing else is touched"
  say "  --dry-run          say what would be done, and do nothing"
}

# Everything that is wrong is told at once, before anything is changed.
add() { faults="$faults
- $*"; }

verify_release() {
  if [ ! -f "$release/SHA256SUMS" ]; then
    add "$release/SHA256SUMS is missing"
    return
  fi
  (cd "$release" && sha256sum --strict -c SHA256SUMS >/dev/null 2>&1) ||
    add "$release: a file is not the one that SHA256SUMS names; copy the release again"
  [ "$unverified" = no ] || return 0
  if [ -z "$fingerprint" ]; then
    add "--fingerprint is missing; you have it from whoever runs the consortium"
    return
  fi
  found=$(openssl pkey -pubin -in "$release/fedward-release.pem" -outform DER 2>/dev/null | sha256sum | cut -d' ' -f1)
  [ "$(printf %s "$fingerprint" | tr -d ': ' | tr 'A-F' 'a-f')" = "$found" ] ||
    add "$release/fedward-release.pem has the fingerprint $found, which is not the one that you gave"
  openssl dgst -sha256 -verify "$release/fedward-release.pem" -signature "$release/SHA256SUMS.sig" \
    "$release/SHA256SUMS" >/dev/null 2>&1 || add "SHA256SUMS is not signed by the release key; copy the release again"
}

# Where pip looks. Whatever an index says, only what the release pins by hash is installed.
choose_source() {
  if [ -n "$packages" ]; then
    [ -d "$packages" ] || add "--packages $packages is no folder"
    export PIP_NO_INDEX=1 PIP_FIND_LINKS=$packages
  elif [ "$role$cuda" = silo ] && [ -z "${PIP_EXTRA_INDEX_URL+set}" ] &&
    ! "$python" -m pip config list 2>/dev/null | grep -q extra-index-url; then
    # Only PyTorch's own index has its build without CUDA. A hospital's own configuration of pip goes before.
    export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
  fi
}

# A link is replaced by one rename, so that no start finds none.
point() {
  act ln -sfn "$1" "$2.new"
  act mv -T "$2.new" "$2"
}

# The unit belongs to the version: an older program starts with the unit that it came with.
install_unit() {
  act install -D -m 0644 "$1/$name.service" "$root/etc/systemd/system/$name.service"
  [ -n "$root" ] || act systemctl daemon-reload
}

# systemd knows no share of all cores, so they are counted here: four fifths, as of the memory.
limit_cpu() {
  limit=$root/etc/systemd/system/$name.service.d/10-cpu.conf
  act mkdir -p "$(dirname "$limit")"
  if [ "$dry" = yes ]; then
    say "would write $limit"
  else
    printf '# Written by %s. `systemctl edit %s` overrides it.\n[Service]\nCPUQuota=%s%%\n' \
      "$(basename "$0")" "$name" "$(($(nproc --all) * 80))" > "$limit"
  fi
}

roll_back() {
  [ -L "$home/previous" ] || fail "$home has no version before the current one"
  before=$(readlink "$home/previous")
  now=$(readlink "$home/current")
  [ -f "$home/$before/.complete" ] && [ -f "$home/$before/$name.service" ] ||
    fail "$home/$before is not complete; install that version again"
  install_unit "$home/$before"
  point "$before" "$home/current"
  point "$now" "$home/previous"
  say "$name goes from $now back to $before. Then: systemctl restart $name"
}

install_role() {
  role=$1 programs=$2 config=$3
  shift 3
  release=$here fingerprint='' unverified=no cuda='' python=python3 packages='' root='' back=no dry=no faults=''
  while [ $# -gt 0 ]; do
    case $1 in
      --release|--python|--fingerprint|--packages|--root)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
          --release) release=$2 ;;
          --python) python=$2 ;;
          --fingerprint) fingerprint=$2 ;;
          --packages) packages=$2 ;;
          --root) root=${2%/} ;;
        esac
        shift 2 ;;
      --unverified) unverified=yes; shift ;;
      --cuda) cuda=-cuda; shift ;;
      --roll-back) back=yes; shift ;;
      --dry-run) dry=yes; shift ;;
      --help|-h) usage; exit 0 ;;
      *) usage >&2; fail "unknown option $1" ;;
    esac
  done
  name=fedward-$role
  home=$root/opt/$name
  [ -n "$root" ] || [ "$dry" = yes ] || [ "$(id -u)" = 0 ] || add "this needs root; run it with sudo, or give --root"
  if [ "$back" = yes ]; then
    [ -z "$faults" ] || fail "nothing was changed:$faults"
    roll_back
    return
  fi

  requirements=$release/requirements-$role$cuda.txt
  verify_release
  choose_source
  version=$(sed -n 's/^fedward\[[^]]*\]==\([^ ]*\) .*/\1/p' "$requirements" 2>/dev/null) || true
  [ -n "$version" ] || add "$requirements is missing or names no version of fedward"
  "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    add "$python is not Python 3.11 or newer with venv; give --python"
  slot=$version$cuda
  if [ -f "$home/$slot/.complete" ] && ! cmp -s "$home/$slot/.complete" "$requirements"; then
    add "$home/$slot holds this version with other packages; a release that changed needs a number of its own"
  fi
  base=$("$python" -c 'import os, sys; print(os.path.realpath(sys.base_prefix))' 2>/dev/null) || true
  case $base in
    /root/*|/home/*)
      [ -n "$root" ] || add "$python lies in $base, where a service may not look; give --python /usr/bin/python3" ;;
  esac
  [ -z "$faults" ] || fail "nothing was changed:$faults"

  if [ -z "$root" ] && ! getent passwd "$name" >/dev/null; then
    act useradd --system --home-dir "/var/lib/$name" --shell /usr/sbin/nologin "$name"
  fi
  if cmp -s "$home/$slot/.complete" "$requirements"; then
    say "$home/$slot is there already"
  else
    act rm -rf "$home/$slot"
    act "$python" -m venv "$home/$slot"
    act "$home/$slot/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
      --only-binary :all: -r "$requirements"
    act "$home/$slot/bin/${programs%% *}" --version
    act cp "$requirements" "$home/$slot/.complete"
  fi
  act cp "$release/$name.service" "$home/$slot"
  limit_cpu
  act mkdir -p "$root/etc/$name"
  if [ -L "$home/current" ] && [ "$(readlink "$home/current")" != "$slot" ]; then
    point "$(readlink "$home/current")" "$home/previous"
  fi
  point "$slot" "$home/current"
  install_unit "$home/$slot"
  act mkdir -p "$root/usr/local/bin"
  for one in $programs; do
    point "$home/current/bin/$one" "$root/usr/local/bin/$one"
  done
  if [ -z "$root" ]; then
    act chown "root:$name" "/etc/$name"
    act chmod 0750 "/etc/$name"
    # As systemd would make it at the first start: `enrol` comes before that.
    act install -d -m 0700 -o "$name" -g "$name" "/var/lib/$name"
  fi
  if [ "$dry" = yes ]; then
    say "nothing was changed: without --dry-run, $name $version would be installed now"
    return
  fi
  say "$name $version is installed. Now, as the user $name (sudo -u $name -s) in /var/lib/$name: enrol, and what follows"
  say "in the handbook (docs/handbook). The service starts with /etc/$name/$config: systemctl enable --now $name"
  say "Back to the version before: $(basename "$0") --roll-back, then systemctl restart $name"
}

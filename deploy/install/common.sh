# Shared by install-silo.sh and install-coordinator.sh: `install_role ROLE EXTRAS PROGRAM CONFIG "$@"`.
# Nothing is half done: a version stands in a folder of its own, and one rename makes it the current one.

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }
act() { if [ "$dry" = yes ]; then say "would run: $*"; else "$@"; fi; }

usage() {
  say "usage: $(basename "$0") --release FOLDER [--python PROGRAM] [--extras LIST] [--root FOLDER] [--dry-run]"
  say "  --release FOLDER  what \`make wheel\` wrote: one fedward-*.whl, constraints.txt, SHA256SUMS"
  say "  --python PROGRAM  Python 3.11 or newer, by default python3"
  say "  --extras LIST     more extras of the wheel, such as dicom,export"
  say "  --root FOLDER     install below this folder, without a user and without systemd (for images and tests)"
  say "  --dry-run         say what would be done, and do nothing"
}

install_role() {
  role=$1 extras=$2 program=$3 config=$4
  shift 4
  release='' python=python3 root='' dry=no
  while [ $# -gt 0 ]; do
    case $1 in
      --release|--python|--extras|--root)
        [ $# -ge 2 ] || fail "$1 needs a value"
        case $1 in
          --release) release=$2 ;;
          --python) python=$2 ;;
          --extras) extras=$extras,$2 ;;
          --root) root=${2%/} ;;
        esac
        shift 2 ;;
      --dry-run) dry=yes; shift ;;
      --help|-h) usage; exit 0 ;;
      *) usage >&2; fail "unknown option $1" ;;
    esac
  done

  # Everything that is wrong is told at once, before anything is changed.
  faults=''
  add() { faults="$faults
- $*"; }
  [ -n "$release" ] || add "--release is missing"
  set -- "$release"/fedward-*.whl
  wheel=$1
  if [ -n "$release" ]; then
    { [ $# -eq 1 ] && [ -f "$wheel" ]; } || add "$release: there must be exactly one fedward-*.whl"
    [ -f "$release/constraints.txt" ] || add "$release/constraints.txt is missing"
    if [ -f "$release/SHA256SUMS" ]; then
      (cd "$release" && sha256sum --quiet --strict -c SHA256SUMS >/dev/null 2>&1) ||
        add "$release: a file is not the one that SHA256SUMS names; copy the release again"
    else
      add "$release/SHA256SUMS is missing"
    fi
  fi
  "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    add "$python is not Python 3.11 or newer with venv; give --python"
  [ -n "$root" ] || [ "$dry" = yes ] || [ "$(id -u)" = 0 ] || add "this needs root; run it with sudo, or give --root"
  [ -z "$faults" ] || fail "nothing was changed:$faults"

  version=$(basename "$wheel" | cut -d- -f2)
  name=fedward-$role
  home=$root/opt/$name
  if [ -z "$root" ] && ! getent passwd "$name" >/dev/null; then
    act useradd --system --home-dir "/var/lib/$name" --shell /usr/sbin/nologin "$name"
  fi
  if [ -f "$home/$version/.complete" ]; then
    say "$home/$version is there already"
  else
    act rm -rf "$home/$version"
    act mkdir -p "$home"
    act "$python" -m venv "$home/$version"
    act "$home/$version/bin/python" -m pip install --quiet --disable-pip-version-check \
      -c "$release/constraints.txt" "fedward[$extras] @ file://$(realpath "$wheel")"
    act "$home/$version/bin/$program" --version
    act touch "$home/$version/.complete"
  fi
  act mkdir -p "$root/etc/$name"
  act ln -sfn "$version" "$home/current.new"
  act mv -T "$home/current.new" "$home/current"
  act install -D -m 0644 "$here/$name.service" "$root/etc/systemd/system/$name.service"
  if [ -z "$root" ]; then
    act chown "root:$name" "/etc/$name"
    act chmod 0750 "/etc/$name"
    act systemctl daemon-reload
  fi
  say "$name $version is installed. Before it starts: put $config and what it names into /etc/$name, readable for the"
  say "user $name, with state and data below /var/lib/$name. Then: systemctl enable --now $name"
  say "Back to a version that is still there: ln -sfn VERSION $home/current && systemctl restart $name"
}

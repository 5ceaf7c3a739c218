# Is read by .ci/run. The newest Pythons, and Redis 8, are in no Debian that is released: they are taken from sid, whose /usr
# lies in a folder that is kept. A command sees it instead of its own /usr, and all else as it is: the repository, the
# settings of pip, certificates, names of hosts.

debian="${XDG_CACHE_HOME:-$HOME/.cache}/redis-limpyd-jobs-ci/debian-sid"

# Run a command with that /usr. What is mounted is so for the command only, and is gone with it, however it ends.
in_debian() {
  unshare --mount --propagation private -- bash -c 'mount --bind "$0/usr" /usr && exec "$@"' "$debian" "$@"
}

# Make the folder, unless there is one of this month; return whether there is one. What went wrong is in the log.
make_debian() {
  local log=$1 mirror packages new
  [ -n "$(find "$debian/made" -mtime -30 2>/dev/null)" ] && return
  { [ "$(id -u)" = 0 ] && [ -L /bin ] && [ -L /lib ]; } || return # without root, or /usr is not all
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 2>"$log" | head -n 1)
  [ -n "$mirror" ] || return
  command -v debootstrap >>"$log" || apt-get install -y --no-install-recommends debootstrap >>"$log" 2>&1 || return
  mkdir -p "${debian%/*}" && new=$(mktemp -d "$debian.XXXXXX") || return
  packages=python3.14-venv,python3.15-venv,redis-server,redis-sentinel,ca-certificates,procps,iproute2
  if debootstrap --variant=minbase --include="$packages" sid "$new" "$mirror" >>"$log" 2>&1; then
    rm -rf "$new"/var/cache/apt/archives/*.deb "$debian" && touch "$new/made" && mv -T "$new" "$debian"
  else
    rm -rf "$new"
    return 1
  fi
}

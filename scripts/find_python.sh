# Is read by the scripts that make virtual environments.

# Print the first Python here of those versions, which are given in their order of preference.
find_python() {
  local version candidate
  for version in "$@"; do
    for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
      if "$candidate" --version >/dev/null 2>&1; then
        echo "$candidate"
        return
      fi
    done
  done
  return 1
}

# Run a command that installs this repository in place; one at a time, since each writes its files beside the code.
one_at_a_time() {
  if command -v flock >/dev/null; then flock setup.cfg "$@"; else "$@"; fi
}

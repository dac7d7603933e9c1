# The versions of every tool that is not in Cargo.lock or package-lock.json.
# Sourced by the other scripts; a new version gets a new folder, so nothing has to be cleaned by hand.
CARGO_DENY_VERSION=0.20.2
CARGO_NEXTEST_VERSION=0.9.143
JUST_VERSION=1.59.0
MDBOOK_VERSION=0.5.4

STEPWELL_CACHE=${STEPWELL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stepwell}
STEPWELL_TOOLS=$STEPWELL_CACHE/tools

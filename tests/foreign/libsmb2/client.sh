# libsmb2, if it is installed: neither Debian 12 nor another registry has it. PKG_CONFIG_PATH names another prefix.
prepare() {
    local flags
    { command -v cc && command -v pkg-config; } >/dev/null || { echo "a C compiler or pkg-config is missing"; return 1; }
    flags=$(pkg-config --cflags --libs libsmb2 2>/dev/null) || { echo "libsmb2 is not installed, and no registry serves it"; return 1; }
    # The flags are several words.
    # shellcheck disable=SC2086
    cc -O1 -Wall -o "$built/everyday" "$here/libsmb2/everyday.c" $flags -lpthread >&2 || return 1
    pkg-config --modversion libsmb2
}
everyday() { timeout 300 "$built/everyday"; }

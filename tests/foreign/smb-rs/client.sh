# smb-rs, from crates.io.
prepare() {
    command -v cargo >/dev/null || { echo "cargo is missing"; return 1; }
    CARGO_TARGET_DIR=$built cargo build --quiet --locked --manifest-path "$here/smb-rs/Cargo.toml" >&2 || return 1
    sed -n 's/^smb = "=\(.*\)"/\1/p' "$here/smb-rs/Cargo.toml"
}
everyday() { timeout 120 "$built/debug/everyday"; }

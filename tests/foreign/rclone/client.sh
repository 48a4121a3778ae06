# rclone's smb backend, of Debian's package.
prepare() {
    command -v rclone >/dev/null || { echo "rclone is missing: apt-get install rclone"; return 1; }
    : >"$FOREIGN_WORK/rclone.conf"
    rclone version | sed -n '1s/^rclone //p'
}
everyday() { timeout 300 python3 "$here/everyday.py" "$here/rclone/adapter.py"; }

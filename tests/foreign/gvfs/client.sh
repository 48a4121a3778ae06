# GNOME's gvfs with Samba's libsmbclient below, of Debian's packages, by `gio` in a session bus of its own.
prepare() {
    local name
    for name in gio dbus-run-session; do command -v $name >/dev/null || { echo "$name is missing: apt-get install gvfs gvfs-backends dbus"; return 1; }; done
    [[ -x /usr/libexec/gvfsd-smb ]] || { echo "gvfsd-smb is missing: apt-get install gvfs-backends"; return 1; }
    dpkg-query -W -f '${Version}\n' gvfs-backends
}
everyday() {
    mkdir -p "$FOREIGN_WORK"/{home,run}
    chmod 700 "$FOREIGN_WORK/run"
    HOME=$FOREIGN_WORK/home XDG_RUNTIME_DIR=$FOREIGN_WORK/run GVFS_DISABLE_FUSE=1 \
        timeout 300 dbus-run-session -- python3 "$here/everyday.py" "$here/gvfs/adapter.py"
}

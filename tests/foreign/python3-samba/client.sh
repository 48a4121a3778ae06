# Samba's client library by its Python binding, of Debian's package, with Debian's own Python.
prepare() {
    /usr/bin/python3 -c 'import samba.samba3.libsmb_samba_internal' 2>/dev/null || { echo "python3-samba is missing: apt-get install python3-samba"; return 1; }
    printf '[global]\nclient min protocol = SMB3_11\n' >"$FOREIGN_WORK/samba.conf"
    /usr/bin/python3 -c 'import samba; print(samba.version)'
}
everyday() { timeout 300 /usr/bin/python3 "$here/everyday.py" "$here/python3-samba/adapter.py"; }

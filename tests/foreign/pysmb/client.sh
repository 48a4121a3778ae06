# pysmb, from PyPI.
prepare() {
    local python
    python=$(python_with pysmb==1.2.15 smb) || { echo "pysmb cannot be had from PyPI"; return 1; }
    printf '%s\n' "$python" >"$built/python"
    "$python" -c 'import importlib.metadata; print(importlib.metadata.version("pysmb"))'
}
everyday() { timeout 300 "$(<"$built/python")" "$here/everyday.py" "$here/pysmb/adapter.py"; }

# cloudsoda/go-smb2, a fork of go-smb2 that is kept up, by `go` from its module proxy; the steps are go-smb2's.
prepare() {
    command -v go >/dev/null || { echo "go is missing: apt-get install golang-go"; return 1; }
    mkdir -p "$built/source"
    cp "$here"/cloudsoda-go-smb2/{go.mod,go.sum,dial.go} "$here/go-smb2/everyday.go" "$built/source"
    go -C "$built/source" build -buildvcs=false -o ../everyday . >&2 || return 1
    sed -n 's/^require .*go-smb2 //p' "$here/cloudsoda-go-smb2/go.mod" | grep . || awk '$1 ~ /cloudsoda\/go-smb2/ { print $2 }' "$here/cloudsoda-go-smb2/go.mod"
}
everyday() { timeout 300 "$built/everyday"; }

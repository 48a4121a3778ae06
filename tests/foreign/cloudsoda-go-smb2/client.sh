# cloudsoda/go-smb2, a fork of go-smb2 that is kept up, by `go` from its module proxy; the steps are go-smb2's. Its own tests run as well.
prepare() {
    local name=github.com/cloudsoda/go-smb2 module
    command -v go >/dev/null || { echo "go is missing: apt-get install golang-go"; return 1; }
    mkdir -p "$built/source"
    cp "$here"/cloudsoda-go-smb2/{go.mod,go.sum,dial.go} "$here/go-smb2/everyday.go" "$built/source"
    go -C "$built/source" build -buildvcs=false -o ../everyday . >&2 || { echo "cloudsoda/go-smb2 cannot be had from the module proxy"; return 1; }
    # Tests need modules that only the fork's own go.mod names.
    if ! [[ -x $built/own ]]; then
        module=$(go -C "$built/source" list -m -f '{{.Dir}}' $name)
        cp -r --no-preserve=mode "$module" "$built/module" && go -C "$built/module" test -c -vet=off -buildvcs=false -o ../own . >&2 || return 1
    fi
    awk -v name=$name '$1 == "require" && $2 == name { print $3 } $1 == name { print $2 }' "$here/cloudsoda-go-smb2/go.mod"
}
everyday() {
    timeout 300 "$built/everyday"
    go_tests "$built/own"
}

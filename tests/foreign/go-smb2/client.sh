# hirochachacha/go-smb2, of Debian's sources, which `go` builds in the way from before modules. Its own tests run as well.
prepare() {
    local version name=github.com/hirochachacha/go-smb2
    command -v go >/dev/null || { echo "go is missing: apt-get install golang-go"; return 1; }
    version=$(dpkg-query -W -f '${Version}' golang-github-hirochachacha-go-smb2-dev 2>/dev/null) ||
        { echo "go-smb2 is missing: apt-get install golang-github-hirochachacha-go-smb2-dev"; return 1; }
    GO111MODULE=off GOPATH=/usr/share/gocode go build -o "$built/everyday" "$here"/go-smb2/{everyday,dial}.go >&2 &&
        GO111MODULE=off GOPATH=/usr/share/gocode go test -c -vet=off -o "$built/own" $name >&2 || return 1
    echo "$version"
}
everyday() {
    timeout 300 "$built/everyday"
    go_tests "$built/own"
}

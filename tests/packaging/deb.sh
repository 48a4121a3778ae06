#!/bin/bash
# The .deb as an administrator meets it, in a clean Debian: installed, served by its unit's command line, upgraded, removed, purged. On the
# way the server is watched as systemd would watch it. The rest of packaging/ is checked by its own programs, if they are there.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root" || exit 1
here=tests/packaging

# A Debian without us, kept beside the build.
base=$target/packaging/bookworm.tar
outside() {
    ((EUID == 0)) || { echo "a chroot needs root"; exit 77; }
    for program in dpkg-deb objcopy smbclient python3; do
        command -v "$program" >/dev/null || { echo "$program is missing"; exit 77; }
    done
    unshare --net --mount true 2>/dev/null || { echo "namespaces are not permitted here"; exit 77; }
    if ! [[ -e $base ]]; then
        command -v debootstrap >/dev/null || apt-get install -y --no-install-recommends debootstrap >"$work/apt" 2>&1 ||
            { echo "debootstrap is missing: apt-get install debootstrap"; exit 77; }
        mkdir -p "$(dirname "$base")"
        debootstrap --variant=minbase --include=systemd,udev bookworm "$work/base" >"$work/debootstrap" 2>&1 ||
            { echo "no Debian can be had here: $(tail -n 1 "$work/debootstrap")"; exit 77; }
        rm -rf "$work/base/var/cache/apt" "$work/base/var/lib/apt/lists"
        tar -C "$work/base" -cf "$base.new" . && mv "$base.new" "$base"
    fi
    CENOTE=$CENOTE unshare --net --mount "${BASH_SOURCE[0]}" inside
    exit
}
[[ ${1:-} == inside ]] || outside

xtask() { cargo xtask dist --binaries "$(dirname "$CENOTE")" "$@"; }
check "cargo xtask dist makes packages" xtask --out "$work/old" --version 0.0.9
check "and all packages of another version" xtask --out "$work/new"
check "their sums are right" bash -c "cd '$work/new' && sha256sum --check SHA256SUMS"
# Lines that were written in the meantime do not matter.
check "and packages of the same commit are the same" bash -c "
    cargo xtask dist --binaries '$(dirname "$CENOTE")' --out '$work/again' && cmp '$work/new/SHA256SUMS' '$work/again/SHA256SUMS'"
old=$(echo "$work"/old/cenote_*.deb) new=$(echo "$work"/new/cenote_*.deb)
[[ -e $old && -e $new ]] || { not_ok "there is a .deb"; summary; }

system=$work/system
mkdir "$system"
tar -C "$system" -xf "$base"
mount --rbind /dev "$system/dev" && mount -t proc proc "$system/proc"
python3 "$here/service_manager.py" loopback
within() { chroot "$system" "$@"; }
cli() { within cenote "$@"; }
unmounted() { [[ -z $server_pid ]] || kill "$server_pid" 2>/dev/null; [[ -z ${container_pid:-} ]] || kill "$container_pid" 2>/dev/null; umount -R "$system/dev" "$system/proc" 2>/dev/null; cleanup; }
trap unmounted EXIT
install_deb() { cp "$1" "$system/tmp/" && within dpkg --install "/tmp/${1##*/}"; }

# --- Installing -------------------------------------------------------------------------------------------------------
check "the .deb installs on a Debian with nothing but systemd" install_deb "$old"
equal "its version" 0.0.9 "$(within dpkg-query -W -f '${Version}' cenote)"
equal "who makes it can be reached" "The Cenote developers <$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)>" "$(within dpkg-query -W -f '${Maintainer}' cenote)"
check "the user is there" within id cenote
for file in usr/libexec/cenote-upgrade usr/lib/firewalld/services/cenote.xml etc/ufw/applications.d/cenote usr/share/doc/cenote/docs/{CLUSTER,PERFORMANCE}.md usr/bin/cenote usr/bin/diskspd usr/bin/fleet usr/lib/udev/rules.d/65-cenote.rules usr/share/bash-completion/completions/cenote \
    usr/share/zsh/vendor-completions/_cenote usr/share/fish/vendor_completions.d/cenote.fish usr/share/man/man1/cenote.1.gz \
    usr/share/man/man1/cenote-pool-create.1.gz usr/share/man/man1/diskspd.1.gz usr/share/man/man1/fleet-measure.1.gz usr/share/doc/cenote/{copyright,NOTICES.gz,LICENSE-MIT,changelog.gz}; do
    [[ -s $system/$file ]] || not_ok "/$file is not there"
done
check "the programs run" bash -c "chroot '$system' cenote --version && chroot '$system' diskspd '-?' && chroot '$system' fleet --version"
check "the programs are stripped" bash -c "! readelf --sections --wide '$system/usr/bin/cenote' | grep -E '\.(debug_info|symtab)'"
debug_id() { readelf --notes "$1" 2>/dev/null | sed -n 's/.*Build ID: //p'; }
dpkg-deb -x "$(echo "$work"/old/cenote-dbgsym_*.deb)" "$work/debug"
id=$(debug_id "$system/usr/bin/cenote")
check "the debug file is found by the program's build id" test -s "$work/debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
check "the notices name the crates that are linked, and not those of tests" bash -c "
    zcat '$system/usr/share/doc/cenote/NOTICES.gz' >'$work/notices' && grep -q '^aws-lc-rs [0-9.]*: ' '$work/notices' && ! grep -q '^proptest ' '$work/notices'"
exposure=$(within systemd-analyze security --offline=true /usr/lib/systemd/system/cenote.service | sed -n 's/.*exposure level.*: \([0-9.]*\) .*/\1/p')
check "the unit's exposure is at most 2.0 (${exposure:-unknown})" awk -v got="${exposure:-9}" 'BEGIN { exit !(got <= 2.0) }'
check "systemd takes the units" within systemd-analyze verify --man=no cenote.service cenote-locate.socket cenote-smart.timer
if within udevadm verify --help >/dev/null 2>&1; then
    check "udev takes the rule" within udevadm verify /usr/lib/udev/rules.d/65-cenote.rules
fi

# --- Serving by the unit's command line --------------------------------------------------------------------------------
within install -d -o cenote -g cenote -m 700 /var/lib/cenote /run/cenote
log=$work/messages
serve() { # environment ...
    local command end=$((SECONDS + 30))
    read -ra command <<<"$(sed -n 's/^ExecStart=//p' "$system/usr/lib/systemd/system/cenote.service")"
    : >"$log"
    RUNTIME_DIRECTORY=/run/cenote env "$@" python3 "$here/service_manager.py" run "$log" "$work/journal" /run/notify "$system" \
        chroot --userspec=cenote:cenote "$system" "${command[@]}" &
    server_pid=$!
    until grep -q READY=1 "$log"; do
        kill -0 "$server_pid" 2>/dev/null && ((SECONDS < end)) || { tail -n 5 "$work/journal"; return 1; }
        sleep 0.1
    done
}
# In this shell, which keeps its number, and with no pipe of `check` in its hands.
serves() { # NAME environment ...
    if serve "${@:2}" >"$work/serve.out" 2>&1; then ok "$1"; else not_ok "$1" "$(tail -n 12 "$work/serve.out")"; fi
}
serves "the server starts as its unit starts it, as its user"
check "a pool, a volume, a user and a share are made" bash -c "
    cenote() { chroot '$system' cenote \"\$@\"; }
    cenote pool create pool /var/lib/cenote/disks/disk{1,2,3} --create 1GiB && cenote volume create v --size 1GiB &&
    echo '$password' | cenote user add '$user' --password-stdin && cenote share create '$share' --volume v --grant '$user:full'"
smb_port=445
random_file "$work/file" 3
check "a file is written on port 445" smb "put $work/file file"
check "the API's address lies in the run-time directory" bash -c "
    [[ \$(readlink '$system/var/lib/cenote/api.address') == /run/cenote/api.address && -s '$system/run/cenote/api.address' ]]"
check "lines of the log carry their priority" bash -c "grep -q '^<6>.*serving' '$work/journal' && ! grep -v '^<[3467]>' '$work/journal'"

# A watchdog of two seconds is fed twice a second.
fed() { grep -c WATCHDOG=1 "$log"; }
before=$(fed); sleep 2; after=$(fed)
check "the watchdog is fed ($((after - before)) times in 2 s)" test $((after - before)) -ge 3
daemon=$(pgrep -P "$(pgrep -P "$server_pid" | head -n 1)" || pgrep -P "$server_pid")
read -r began ended <<<"$(python3 "$here/service_manager.py" freeze "$daemon" cenote-data 3)"
# A turn that had ended before is told of once more.
after=$(fed)
meanwhile=$(awk -v from="${began:-0}" -v to="${ended:-0}" '/WATCHDOG=1/ && $1 > from + 0.6 && $1 < to' "$log" | wc -l)
check "while the data plane's thread is stopped the watchdog goes hungry" test -n "$ended" -a "$meanwhile" = 0
sleep 1.5
check "and is fed again afterwards" test "$(fed)" -gt "$after"

names() { grep -oE '\bcenote_[a-z0-9_]+' packaging/monitoring/cenote.rules.yml | sort -u; }
python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:9445/metrics").read().decode())' >"$work/metrics"
# These are of devices that say something of themselves, and of clusters.
for name in $(names | grep -vE '^cenote_(disk_device|cluster|node|etcd|certificate|authority)_'); do
    grep -q "^$name[ {]" "$work/metrics" || not_ok "/metrics has no $name, which cenote.rules.yml records"
done

# --- Upgrading, removing, purging ----------------------------------------------------------------------------------------
echo '# ours' >>"$system/etc/cenote/cenote.toml"
check "a newer version installs over it while it serves" install_deb "$new"
check "the old one goes on until it is told to stop, and then says so" bash -c "
    kill $server_pid; while kill -0 $server_pid 2>/dev/null; do sleep 0.1; done; grep -q STOPPING=1 '$log'"
server_pid=
check "no address stays behind" test ! -e "$system/var/lib/cenote/api.address" -a ! -L "$system/var/lib/cenote/api.address"
equal "the configuration stayed as it was edited" '# ours' "$(tail -n 1 "$system/etc/cenote/cenote.toml")"

# The key goes to a place that root alone reads; the server is handed it.
within install -d -o cenote -m 500 /run/credentials
within install -o cenote -m 440 /var/lib/cenote/secret.key /run/credentials/secret.key
rm "$system/var/lib/cenote/secret.key"
serves "the new version starts, with the key as a credential" CREDENTIALS_DIRECTORY=/run/credentials
check "the file is as it was" bash -c "smbclient //127.0.0.1/$share -p 445 -U '$user%$password' -c 'get file $work/got' && cmp '$work/file' '$work/got'"
check "no other key was made" test ! -e "$system/var/lib/cenote/secret.key"
stop_server
check "removing stops nothing that is not there, and leaves configuration and data" bash -c "
    chroot '$system' dpkg --remove cenote && [[ ! -e '$system/usr/bin/cenote' && -e '$system/etc/cenote/cenote.toml' && -e '$system/var/lib/cenote/state.redb' ]]"
check "purging takes the configuration, and says that the data stays" bash -c "
    chroot '$system' dpkg --purge cenote | grep -q '/var/lib/cenote stays' && [[ ! -e '$system/etc/cenote' && -e '$system/var/lib/cenote/state.redb' ]]"
check "it comes back with its data" bash -c "cp '$new' '$system/tmp/new.deb' && chroot '$system' dpkg --install /tmp/new.deb && [[ -e '$system/var/lib/cenote/state.redb' ]]"
check "purging takes the data if it is told to" bash -c "CENOTE_PURGE_DATA=yes chroot '$system' dpkg --purge cenote && [[ ! -e '$system/var/lib/cenote' ]]"

# --- The container file: what it does to a Debian, done to this one, since no engine is needed for that ------------------
# Lines that end in a backslash go on in the next.
container() { sed -e ':a' -e '/\\$/N; s/\\\n//; ta' packaging/Containerfile | sed -n "s/^$1 //p"; }
equal "its instructions are known ones" "" "$(sed -e ':a' -e '/\\$/N; s/\\\n//; ta' packaging/Containerfile | grep -vE '^(#|$|(FROM|COPY|RUN|USER|ENV|VOLUME|EXPOSE|STOPSIGNAL|HEALTHCHECK|ENTRYPOINT) )')"
equal "it starts from the Debian that this is" "docker.io/library/debian:$(. "$system/etc/os-release"; echo "$VERSION_CODENAME")-slim" "$(container FROM)"
read -r pattern to <<<"$(container COPY)"
check "what it copies is one file beside it" bash -c "shopt -s nullglob; found=('$work/new/'$pattern); ((\${#found[@]} == 1))"
cp "$work/new/"$pattern "$system$to"
# The package that makes its user is here as a part of systemd.
container RUN | sed -E 's/^apt-get update && *//; s/systemd-standalone-sysusers//; s/apt-get install -y --no-install-recommends/dpkg --install/' >"$system/tmp/steps"
check "its steps work" within sh -e /tmp/steps
as_container=(chroot --userspec="$(container USER):$(container USER)" "$system" env -i PATH=/usr/bin:/bin "$(container ENV)")
mapfile -t entry < <(container ENTRYPOINT | python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")')
"${as_container[@]}" "${entry[@]}" >"$work/container.out" 2>&1 &
container_pid=$!
for _ in {1..300}; do grep -q '^ready$' "$work/container.out" && break; sleep 0.1; done
check "its trial server starts as its user, and prints a password" bash -c "grep -q '^ready\$' '$work/container.out' && grep -q 'smbclient .*demo' '$work/container.out'"
check "its health check finds it healthy" "${as_container[@]}" sh -c "$(container HEALTHCHECK | sed 's/^CMD //')"
check "the first port that it exposes is that of the server" test "${entry[-1]##*:}" = "$(container EXPOSE | cut -d " " -f 1)"
# The signal goes to the program, which the engine starts without a shell.
kill -"$(container STOPSIGNAL | sed 's/^SIG//')" "$container_pid"
wait "$container_pid"
equal "its signal ends it in order" 0 $?
check "its data is gone with the package that is told so" bash -c "CENOTE_PURGE_DATA=yes chroot '$system' dpkg --purge cenote && [[ ! -e '$system/var/lib/cenote' ]]"

# --- The rest of packaging/ ------------------------------------------------------------------------------------------------
slot=$work/class/sdq/device/enclosure_device:7
mkdir -p "$slot" && echo 0 >"$slot/locate"
locate() { packaging/cenote-locate "$work/class" <<<"$1"; }
equal "root's helper switches an LED" "ok 1" "$(locate 'sdq 1') $(cat "$slot/locate")"
equal "of disks alone" "'../../etc' is not the name of a disk" "$(locate '../../etc 1')"
equal "on or off" "'x' is neither 0 nor 1" "$(locate 'sdq x')"
equal "if there is one" "sda has no slot with an LED" "$(locate 'sda 1')"
check "Avahi's file is XML" python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("packaging/discovery/avahi.service")'

# --- The .rpm, by rpm itself, in the same system: what it depends on there came as .deb, which rpm does not know -----------
if command -v rpm >/dev/null && ls "$work"/new/cenote-[0-9]*.rpm >/dev/null 2>&1; then
    dpkg-deb -x "$new" "$work/deb"
    equal "the .rpm has the same program" "$(sha "$work/deb/usr/bin/cenote")" \
        "$(rpm -qp --dump "$work"/new/cenote-[0-9]*.rpm 2>/dev/null | awk '$1 == "/usr/bin/cenote" { print $4 }')"
    check "and marks the configuration as such" bash -c "rpm -qp --configfiles '$work'/new/cenote-[0-9]*.rpm | grep -qx /etc/cenote/cenote.toml"
    within userdel cenote 2>/dev/null
    in_root() { rpm --root "$system" --nodeps "$@"; }
    rpm --root "$system" --initdb
    check "it installs" in_root --install "$work"/old/cenote-[0-9]*.rpm
    equal "its version" 0.0.9-1 "$(rpm --root "$system" --query --queryformat '%{VERSION}-%{RELEASE}' cenote)"
    check "its scripts made the user" within id cenote
    check "the programs run" bash -c "chroot '$system' cenote --version && chroot '$system' diskspd '-?'"
    check "no file differs from what the package says" bash -c "[[ -z \$(rpm --root '$system' --verify --nodeps cenote) ]]"
    echo '# ours' >>"$system/etc/cenote/cenote.toml"
    within install -d -o cenote -g cenote -m 700 /var/lib/cenote /run/cenote
    serves "the server starts from it as its unit starts it"
    check "a newer one takes its place while it serves" in_root --upgrade "$work"/new/cenote-[0-9]*.rpm
    equal "its version" "$(rpm -qp --queryformat '%{VERSION}' "$work"/new/cenote-[0-9]*.rpm 2>/dev/null)" "$(rpm --root "$system" --query --queryformat '%{VERSION}' cenote)"
    equal "the configuration stayed as it was edited" '# ours' "$(tail -n 1 "$system/etc/cenote/cenote.toml")"
    stop_server
    check "the old one goes on until it is told to stop, and then says so" grep -q STOPPING=1 "$log"
    check "the debug files install beside it" in_root --install "$work"/new/cenote-debuginfo-*.rpm
    check "removing keeps the edited configuration and the data" bash -c "
        rpm --root '$system' --erase cenote-debuginfo cenote && [[ ! -e '$system/usr/bin/cenote' && ! -e '$system/usr/lib/systemd/system/cenote.service' ]] &&
        grep -qx '# ours' '$system/etc/cenote/cenote.toml.rpmsave' && [[ -e '$system/var/lib/cenote/state.redb' ]]"
else
    skip "the .rpm: rpmbuild is missing (apt-get install rpm)"
fi
summary

#!/bin/bash
# The package in a virtual machine with systemd: whole devices as disks, the unit's sandbox, the watchdog, credentials, the helper for LEDs,
# upgrade and removal of a server that runs.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root" || exit 1
((EUID == 0)) || { echo "a chroot needs root"; exit 77; }
for program in qemu-system-x86_64:qemu-system-x86 mkfs.ext4:e2fsprogs dpkg-deb:dpkg; do
    command -v "${program%%:*}" >/dev/null || apt-get install -y --no-install-recommends "${program#*:}" >/dev/null 2>&1 ||
        { echo "${program%%:*} is missing: apt-get install ${program#*:}"; exit 77; }
done

# A Debian that starts, kept beside the build.
base=$target/packaging/bookworm-guest.tar
if ! [[ -e $base ]]; then
    command -v debootstrap >/dev/null || apt-get install -y --no-install-recommends debootstrap >/dev/null 2>&1
    mkdir -p "$(dirname "$base")"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,udev,dbus,python3,smbclient,linux-image-cloud-amd64,initramfs-tools \
        bookworm "$work/base" >"$work/debootstrap" 2>&1 || { echo "no Debian can be had here: $(tail -n 1 "$work/debootstrap")"; exit 77; }
    rm -rf "$work/base/var/cache/apt" "$work/base/var/lib/apt/lists"
    tar -C "$work/base" -cf "$base.new" . && mv "$base.new" "$base"
fi

xtask() { cargo xtask dist --binaries "$(dirname "$CENOTE")" "$@" >/dev/null; }
xtask --only deb --out "$work/old" --version 0.0.9 && xtask --only deb --out "$work/new" || { not_ok "packages are made"; summary; }

system=$work/system
mkdir "$system"
tar -C "$system" -xf "$base"
cp "$work"/old/cenote_*.deb "$system/root/old.deb"
cp "$work"/new/cenote_*.deb "$system/root/new.deb"
cp tests/packaging/service_manager.py tests/packaging/in_guest.sh "$system/root/"
cat >"$system/etc/systemd/system/cenote-test.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /root/in_guest.sh
StandardOutput=file:/dev/ttyS0
StandardError=file:/dev/ttyS0
ExecStopPost=/bin/systemctl poweroff --force
UNIT
mkdir -p "$system/etc/systemd/system/graphical.target.wants"
ln -s ../cenote-test.service "$system/etc/systemd/system/graphical.target.wants/"
echo '/dev/vda / ext4 defaults 0 0' >"$system/etc/fstab"
kernel=$(echo "$system"/boot/vmlinuz-*) initrd=$(echo "$system"/boot/initrd.img-*)
cp "$kernel" "$work/kernel" && cp "$initrd" "$work/initrd"
truncate -s 3G "$work/image" && mkfs.ext4 -q -d "$system" "$work/image"
rm -rf "$system"
truncate -s 2G "$work/disk1" "$work/disk2"

drive() { echo "-drive file=$work/$1,format=raw,if=virtio,cache=unsafe"; }
# shellcheck disable=SC2046
# Emulated: slow, and the same everywhere (as tests/guest).
timeout 1200 qemu-system-x86_64 -accel "${GUEST_ACCEL:-tcg,thread=multi}" -cpu max -smp 2 -m 2048 -nographic -no-reboot -nic none $(drive image) $(drive disk1) $(drive disk2) \
    -kernel "$work/kernel" -initrd "$work/initrd" -append 'root=/dev/vda rw console=ttyS0 mitigations=off quiet systemd.show_status=no systemd.mask=serial-getty@ttyS0.service loglevel=3' \
    </dev/null >"$work/console" 2>&1
# The console is the test's alone: a login there would hang up on it.
tr -d '\r' <"$work/console" | grep -a -E '^(ok |not ok |        )' >"$work/results"
cat "$work/results"
passed=$(grep -c '^ok ' "$work/results")
failed=$(grep -c '^not ok ' "$work/results")
grep -aq '^        all of it was run' "$work/results" || not_ok "the machine went through all of it" "$(tail -n 15 "$work/console")"
summary

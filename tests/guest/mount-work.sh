#!/bin/sh
# Guest job: mounts the share with cifs.ko over TCP and runs mountwork in it (fsx, a tree with checksums, writers side by side).
# MOUNTWORK: the binary, on the host (statically linked). WORK_VERSION: dialect, default 3.1.1. WORK_FSX, WORK_TREE, WORK_WRITERS,
# WORK_SEED: operations, files, writers, seed. WORK_STAGES: which of "fsx direct tree links writers" to run; "links" needs
# a kernel whose cifs.ko makes native symbolic links (6.13 or later).
# WORK_PAUSE: a file name on /host; between making and verifying the tree the job waits until the host has created it.
# Exit status 0 only when every check passed.
if [ -z "${CENOTE_GUEST:-}" ]; then
    : "${MOUNTWORK:?the mountwork binary}"
    export GUEST_FILES="$MOUNTWORK ${GUEST_FILES:-}"
    exec "$(dirname "$0")/run.sh" "$0" "$@"
fi
. /job/functions

binary=/job/files/mountwork
seed=${WORK_SEED:-1}
stages=${WORK_STAGES:-fsx direct tree writers}
mount_share /mnt "port=${HOST_PORT:-445},vers=${WORK_VERSION:-3.1.1}"
folder=/mnt/mountwork-$$
check "mkdir" mkdir "$folder"
for stage in $stages; do
    case $stage in
    fsx) check "fsx" $binary fsx "$folder/fsx" "${WORK_FSX:-1000}" "$seed" ;;
    direct) check "fsx with O_DIRECT" $binary fsx "$folder/fsx" "${WORK_FSX:-1000}" "$seed" direct ;;
    tree)
        check "make a tree" $binary tree "$folder/tree" "${WORK_TREE:-200}" "$seed"
        if [ -n "${WORK_PAUSE:-}" ]; then
            # cifs.ko closes files a second late, and sync sends no FLUSH: what is left to the server is its promise that
            # everything it was given is durable five seconds later.
            sync
            sleep 7
            say "GUEST-PAUSE"
            wait_for 120 test -e "/host/$WORK_PAUSE" || die "the host did not go on"
        fi
        forget_cache
        check "verify the tree" $binary verify "$folder/tree" "${WORK_TREE:-200}" "$seed"
        ;;
    links)
        # The server follows no symbolic link: cifs.ko is told of it, also in the middle of a path, and walks on by itself.
        mkdir -p "$folder/links/sub"
        echo content >"$folder/links/sub/file"
        if ln -s sub/file "$folder/links/relative" && ln -s ../links/sub "$folder/links/up" && ln -s up "$folder/links/again" &&
            ln -s pool "$folder/links/loop" && ln -s loop "$folder/links/pool"; then
            forget_cache
            for path in relative up/file again/file; do
                check "the link $path" test "$(cat "$folder/links/$path")" = content
            done
            check "a loop of links ends" sh -c "! cat '$folder/links/loop/x' 2>/dev/null"
            check "a hard link below a symbolic link" ln "$folder/links/sub/file" "$folder/links/up/second"
            check "its content" test "$(cat "$folder/links/sub/second")" = content
        else
            check "symbolic links" false
        fi
        ;;
    writers) check "writers side by side" $binary writers "$folder" "${WORK_WRITERS:-8}" 4 "$seed" ;;
    esac
done
check "remove it all" rm -r "$folder"
evidence
check "unmount" umount /mnt
summary

#!/bin/bash
# smbclient, as the printed line starts it: put, get, list, rename, delete, directories, a large file, every dialect.
. "$(dirname "$0")/../lib.sh"

start_server || { not_ok "quickstart says ready"; summary; }
ok "quickstart says ready ($start_ms ms)"

large=64
[[ $mode == full ]] && large=1024
random_file "$work/large" $large
random_file "$work/small" 1
printf 'one line\n' >"$work/line"
: >"$work/empty"
cd "$work" || exit 1

check "put of $large MiB" smb "put large"
check "get of $large MiB" smb "get large large.back"
equal "sha256 of $large MiB" "$(sha large)" "$(sha large.back)"
check "a directory, files in it, and back" smb "mkdir d; cd d; put small; put line; put empty; get small s.back; get line l.back; get empty e.back"
equal "sha256 of 1 MiB" "$(sha small)" "$(sha s.back)"
equal "content of a short file" "$(cat line)" "$(cat l.back)"
equal "size of an empty file" 0 "$(stat -c %s e.back)"
check "a list shows names and sizes" bash -c "smbclient //127.0.0.1/$share -p $smb_port -U '$user%$password' -c 'ls d/*' | grep -E 'small +A? +1048576'"
check "rename within and across directories" smb "rename d/small d/renamed; rename d/renamed moved; get moved m.back"
equal "sha256 after renames" "$(sha small)" "$(sha m.back)"
refuses "the old name is gone" OBJECT_NAME_NOT_FOUND smb "get d/small"
check "delete" smb "rm moved"
refuses "a deleted file is gone" NO_SUCH_FILE smb "ls moved"
check "a directory with files is not removed" bash -c "smbclient //127.0.0.1/$share -p $smb_port -U '$user%$password' -c 'rmdir d' 2>&1 | grep DIRECTORY_NOT_EMPTY"
check "an emptied directory is removed" smb "rm d/line; rm d/empty; rmdir d"
check "overwriting a file" smb "put line over; put small over; get over o.back"
equal "sha256 after overwriting" "$(sha small)" "$(sha o.back)"
check "names beyond ASCII" smb "put line Übergrößenträger-日本.txt; get Übergrößenträger-日本.txt u.back"
check "names whose case alone differs are one file" smb "get ÜBERGRÖßENTRÄGER-日本.TXT c.back"
equal "content by another case" "$(cat line)" "$(cat c.back 2>/dev/null)"
check "free space is shown" smb "du"

for dialect in SMB2_02 SMB2_10 SMB3_00 SMB3_02 SMB3_11; do
    check "dialect $dialect: write and read" timeout 60 smbclient "//127.0.0.1/$share" -p "$smb_port" -U "$user%$password" \
        --option="client min protocol=$dialect" --option="client max protocol=$dialect" -c "put line $dialect; get $dialect $dialect.back"
    equal "dialect $dialect: content" "$(cat line)" "$(cat $dialect.back 2>/dev/null)"
done
check "signed" timeout 60 smbclient "//127.0.0.1/$share" -p "$smb_port" -U "$user%$password" --client-protection=sign -c "put small signed; get signed signed.back"
equal "sha256 of what was signed" "$(sha small)" "$(sha signed.back)"
check "encrypted" timeout 60 smbclient "//127.0.0.1/$share" -p "$smb_port" -U "$user%$password" --client-protection=encrypt -c "put small sealed; get sealed sealed.back"
equal "sha256 of what was encrypted" "$(sha small)" "$(sha sealed.back)"
check "shares are listed" bash -c "smbclient -L 127.0.0.1 -p $smb_port -U '$user%$password' | grep -E '$share +Disk'"

# Symbolic links, which smbclient makes and does not follow: it is told where it stopped, and what it names stays as it was.
check "symbolic links to a file and to a directory" smb "mkdir real; put line real/file; symlink real\\file link; symlink real way; symlink ring ring"
for name in link 'way\file' ring; do refuses "get through $name" STOPPED_ON_SYMLINK smb "get $name nothing"; done
refuses "a list below a link" STOPPED_ON_SYMLINK smb "ls way\\*"
check "a file to be linked and renamed" smb "put line kept"
refuses "a hard link to a name below a link" STOPPED_ON_SYMLINK smb "hardlink kept way\\other"
refuses "a rename to a name below a link" STOPPED_ON_SYMLINK smb "rename kept way\\other"
check "the file is where it was, and the link goes without what it leads to" smb "get kept k.back; rm link; rm way; rm ring; get real/file r.back"
equal "content of both" "$(cat line line)" "$(cat k.back r.back 2>/dev/null)"
refuses "nothing came to be where the link led" NO_SUCH_FILE smb "ls real\\other"

# 1,000 small files in one directory.
mkdir many && for i in $(seq 1000); do echo "$i" >"many/f$i"; done
check "1,000 files by recursive mput" smb "prompt off; recurse on; mput many"
mkdir back && cd back && check "1,000 files by recursive mget" smb "prompt off; recurse on; mget many"
check "1,000 files are as they were" diff -r "$work/many" "$work/back/many"
cd "$work" || exit 1
check "1,000 files are deleted" smb "deltree many"

stop_server
equal "SIGTERM ends it with status 0" 0 $?
start_server || { not_ok "starts again"; summary; }
check "the large file is still there" smb "get large again"
equal "sha256 after a restart" "$(sha large)" "$(sha again)"
check "health is clean" cli health
stop_server
summary

# Addresses of loopback that no script beside this one has: a network by the script's number (93-other-etcd.sh: 127.93), and in it one by chance, so
# that two runs of one script on a machine rarely meet either.
network=127.$(basename "$0" | cut -d - -f 1).$((1 + RANDOM % 250))
address() { echo "$network.$1"; }

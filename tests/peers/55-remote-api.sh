#!/bin/bash
# The API over TLS from elsewhere, and health told to a webhook.
. "$(dirname "$0")/../lib.sh"
command -v openssl >/dev/null || { echo "openssl is missing: apt-get install openssl"; exit 77; }
cd "$work" || exit 1
tls_port=$(free_port) hook_port=$(free_port)

certificate() { # NAME SUBJECT-ALTERNATIVE-NAMES: NAME.pem and NAME.key by the authority
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2>/dev/null &&
        openssl x509 -req -in "$1.csr" -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile <(echo "subjectAltName=$2") -out "$1.pem" 2>/dev/null &&
        chmod 600 "$1.key"
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority -keyout authority.key -out authority.pem 2>/dev/null
certificate server DNS:localhost,IP:127.0.0.1
certificate stranger DNS:elsewhere.example
for number in 1 2 3; do truncate -s 1G "disk$number.img"; done

configuration() { # [certificate [key]]
    cat <<TOML
[server]
data_dir = "$work/data"
[smb]
listen = ["127.0.0.1:$smb_port"]
[api]
listen = "127.0.0.1:$http_port"
tls_listen = ["127.0.0.1:$tls_port"]
tls_certificate = "$work/${1-server.pem}"
tls_key = "$work/${2-server.key}"
[health]
webhook = "http://127.0.0.1:$hook_port/health"
TOML
}
serve() { serve_config "$work/cenote.toml" 30; }
remote() { "$CENOTE" --api "https://localhost:$tls_port" --token-file data/api.token --ca-file authority.pem "$@"; }
status_of() { python3 - "$@" <<'PYTHON'
import http.client, ssl, sys
context = ssl.create_default_context(cafile="authority.pem")
connection = http.client.HTTPSConnection("localhost", int(sys.argv[1]), context=context, timeout=20)
connection.request("GET", sys.argv[2])
print(connection.getresponse().status)
PYTHON
}

configuration stranger.pem >cenote.toml
refuses "a certificate and another one's key" "cannot be used together" "$CENOTE" serve --config cenote.toml
configuration missing.pem >cenote.toml
refuses "a certificate that is not there" "missing.pem.*No such file" "$CENOTE" serve --config cenote.toml
configuration server.csr >cenote.toml
refuses "a file without a certificate" "PEM" "$CENOTE" serve --config cenote.toml
configuration >cenote.toml
chmod 644 server.key
refuses "a key that anybody can read" "chmod 640" "$CENOTE" serve --config cenote.toml
chmod 600 server.key
sed '/^tls_key/d' cenote.toml >half.toml
refuses "TLS without a key" "api.tls_key" "$CENOTE" config check half.toml

python3 - "$hook_port" >notices 2>/dev/null <<'PYTHON' &
import http.server, sys
answers = [500]
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        # The first one is refused: it has to come again.
        status = answers.pop() if answers else 204
        if status == 204:
            print(body, flush=True)
        self.send_response(status)
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()
PYTHON
hook_pid=$!
trap 'kill $hook_pid 2>/dev/null; cleanup' EXIT

if serve; then ok "it serves with TLS"; else not_ok "it serves with TLS" "$(tail -n 5 server.err)"; summary; fi
check "a pool is made from elsewhere" remote pool create pool "$work/disk1.img" "$work/disk2.img" "$work/disk3.img"
check "and a volume" remote volume create v --size 512MiB
check "the log names who listens" grep -q "$tls_port" server.err
refuses "an authority that did not sign" "UnknownIssuer|certificate" "$CENOTE" --api "https://localhost:$tls_port" --token-file data/api.token --ca-file stranger.pem health
refuses "the token in the clear to another machine" "over TLS only" "$CENOTE" --api "192.0.2.1:$http_port" --token-file data/api.token health
equal "health is told to anybody" 200 "$(status_of "$tls_port" /healthz)"
equal "figures are not" 401 "$(status_of "$tls_port" /metrics)"
equal "nor is the API" 401 "$(status_of "$tls_port" /api/v1/disks)"
reader() { "$CENOTE" --api "https://localhost:$tls_port" --token-file reader.token --ca-file authority.pem "$@"; }
(umask 077 && remote token create monitoring --role reader --expires 1d >reader.token 2>/dev/null)
check "a reader's token reads" reader disk list
refuses "and changes nothing: the role that is missing is named" "needs the role operator" reader volume create w --size 512MiB
refuses "a second token of that name" "already" remote token create Monitoring --role reader
check "a token is deleted" remote token delete monitoring
refuses "and its holder is refused at once" "wrong token" reader disk list
check "a token's name is in the audit log" grep -q '"actor":"api:monitoring".*"outcome":"refused"' data/audit.log
check "its text is nowhere on the server" bash -c "! grep -rqF \"\$(cat reader.token)\" data server.err"
check "who was refused is in the audit log" grep -q '"action":"GET".*"refused"' data/audit.log
for _ in $(seq 40); do
    exec 3<>"/dev/tcp/127.0.0.1/$tls_port" && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && timeout 10 cat <&3 >/dev/null
    exec 3>&-
done
check "who speaks no TLS too" grep -q '"action":"connect".*"refused".*TLS handshake failed' data/audit.log
# Ten a minute of one address; two minutes at most, on a slow machine.
check "but not each time" test "$(grep -c '"refused"' data/audit.log)" -le 20

stop_server
equal "SIGTERM ends it with status 0" 0 $?
check "what was left out is told with its number" grep -qE '"source":"127.0.0.1","action":"refusals left out".*"[0-9]+ more in the same minute"' data/audit.log
# Beside its old path it would be found by its label.
mkdir elsewhere
mv disk2.img elsewhere/
serve || not_ok "it serves without a disk" "$(tail -n 5 server.err)"
for _ in $(seq 400); do grep -q disk_lost notices && break; sleep 0.1; done
check "a lost disk is told to the webhook, again after it refused" grep -q '"appeared":\[{[^]]*"disk_lost"' notices
check "and to the log" grep -q "health: .*disk2.img" server.err
mv elsewhere/disk2.img .
for _ in $(seq 600); do grep -q '"health":"healthy"' notices && break; sleep 0.1; done
check "its return is told too" grep -q '"resolved":\[{[^]]*"disk_lost"' notices
check "and that all is well in the end" grep -q '"health":"healthy".*"issues":\[\]' notices

# --- Trying the receivers ------------------------------------------------------------------------------------------------
check "a notice is sent as a test" remote alert test
for _ in $(seq 300); do grep -q '"test":true' notices && break; sleep 0.1; done
check "and arrives as one" grep -q '"test":true' notices

# --- A configuration that is read again --------------------------------------------------------------------------------
said() { for _ in $(seq 300); do grep -q "$1" server.err && return; sleep 0.1; done; return 1; }
shows() { for _ in $(seq 300); do remote config show --effective | grep -q "$1" && return; sleep 0.1; done; return 1; }
serves_renewed() { for _ in $(seq 300); do echo | timeout 10 openssl s_client -connect "127.0.0.1:$tls_port" 2>/dev/null | openssl x509 -noout -text | grep -q DNS:renewed && return; sleep 0.1; done; return 1; }
echo '[health' >cenote.toml && kill -HUP "$server_pid"
check "a file that cannot be used changes nothing, and the log says why" said "the configuration stays as it was.*cenote.toml, line 1"
{ configuration | sed "s|/health\"|/other\"|; s|^listen = \[\"127.0.0.1:$smb_port|listen = [\"[::1]:$smb_port|" && printf '[log]\nlevel = "debug"\n'; } >cenote.toml
certificate server DNS:localhost,IP:127.0.0.1,DNS:renewed && kill -HUP "$server_pid"
check "one that can is read again, and keys that need a restart are named" said "some keys need a restart.*needs_restart=\"smb.listen\""
check "the receiver of notices is in force" shows 'webhook = .*/other'
check "and the certificate" serves_renewed
check "and the log's level" said " DEBUG "
for _ in $(seq 200); do kill -HUP "$server_pid"; done
check "signals in a loop end nothing" remote disk list
stop_server
equal "SIGTERM ends it with status 0 again" 0 $?
summary

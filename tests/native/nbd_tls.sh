#!/bin/bash
# NBD over TLS as an operator sets it up: certificates by openssl, a listener beyond loopback, clients that we did not write.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
trap '[ -z "${FTLD:-}" ] || kill -9 "$FTLD" 2> /dev/null; rm -rf "$SCRATCH"' EXIT

# certificate FOLDER NAME EXTENSION...: signed by FOLDER's ca, or by itself when it is that
certificate() {
  local folder=$1 name=$2 extension args=()
  shift 2
  for extension in "$@"; do args+=(-addext "$extension"); done
  [ "$name" = ca ] || args+=(-CA "$folder/ca-cert.pem" -CAkey "$folder/ca-key.pem")
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -config /dev/null -subj "/CN=ftld $name" \
    -keyout "$folder/$name-key.pem" -out "$folder/$name-cert.pem" "${args[@]}" 2> /dev/null || bad "certificate $name"
}

# pki FOLDER
pki() {
  mkdir "$1"
  certificate "$1" ca basicConstraints=critical,CA:TRUE keyUsage=critical,keyCertSign
  certificate "$1" server subjectAltName=DNS:localhost,IP:127.0.0.1 keyUsage=critical,digitalSignature extendedKeyUsage=serverAuth
  certificate "$1" client keyUsage=critical,digitalSignature extendedKeyUsage=clientAuth
}

pki "$SCRATCH/pki"
pki "$SCRATCH/stranger"
cp "$SCRATCH/pki/ca-cert.pem" "$SCRATCH/stranger/"
files=(--tls-cert "$SCRATCH/pki/server-cert.pem" --tls-key "$SCRATCH/pki/server-key.pem" --tls-client-ca "$SCRATCH/pki/ca-cert.pem")
dd if=/dev/urandom of="$SCRATCH/in" bs=1M count=64 2> /dev/null

for target in nbd://0.0.0.0:0/disk nbds://0.0.0.0:0/disk; do
  timeout 60 ftld --metrics off "$target" 2> "$SCRATCH/refused"
  same "$target without a certificate is refused" $? 2
  step "$target: the message says what to add" grep -q -- '--tls-cert' "$SCRATCH/refused"
done

serve --size 64MiB "${files[@]}" nbd://0.0.0.0:0/disk || finish
ready=$(cut -d' ' -f2 "$SCRATCH/ftld.out")
same "the ready line names the way in" "$(sed 's/:[0-9][0-9]*\//:PORT\//' <<< "$ready")" nbds://0.0.0.0:PORT/disk
uri=${ready/0.0.0.0/localhost}
ours="$uri?tls-certificates=$SCRATCH/pki"
step "nbdcopy in" nbdcopy --flush "$SCRATCH/in" "$ours"
step "nbdcopy out" nbdcopy "$ours" "$SCRATCH/out"
step "the same bytes" cmp "$SCRATCH/in" "$SCRATCH/out"
refused "without TLS nobody gets in" 1 "server requires TLS encryption first" nbdinfo --size "${uri/nbds/nbd}"
refused "nor with another authority's certificate" 1 "A TLS fatal alert has been received" nbdinfo --size "$uri?tls-certificates=$SCRATCH/stranger"
quit "over TLS"
finish

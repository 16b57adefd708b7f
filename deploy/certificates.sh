#!/bin/sh
# Certificates for a trial: an authority, one for the bridge, one for the scheduler that calls it.
# usage: certificates.sh FOLDER [NAMESPACE]     In production let cert-manager or your own authority make them.
set -eu
umask 077
folder=${1:?give a folder}
name=sched-lab.${2:-sched-lab}.svc
mkdir -p "$folder"
cd "$folder"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=sched-lab trial" \
    -keyout ca.key -out ca.crt 2>ca.log
sign() {  # file, common name, extensions
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr" 2>>ca.log
    printf '%s\n' "$3" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.crt" 2>>ca.log
    rm "$1.csr" "$1.ext"
}
sign server "$name" "subjectAltName=DNS:$name
extendedKeyUsage=serverAuth"
sign client kube-scheduler "extendedKeyUsage=clientAuth"

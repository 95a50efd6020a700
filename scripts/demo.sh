#!/bin/sh
# `make demo`: the agent, moto in the place of AWS, and two unmodified clients that take credentials each way there is.
# Ends by itself within two minutes; the exit status is 0 only if every step did what it says.
#   scripts/demo.sh [DIR]     DIR holds everything it makes, ./run/demo by default
set -eu

bin=$(cd "$(dirname "$0")/../.venv/bin" && pwd)
dir=${1:-run/demo}
mkdir -p "$dir"
cd "$dir"
rm -rf issuer files agent.sock

agent= moto= failed='a step failed: see above'
finish() {
    trap - EXIT INT TERM
    for one in $agent $moto; do kill "$one" 2>/dev/null || true; done
    wait
    [ -z "$failed" ] || { printf '\nfailed: %s\n' "$failed" >&2; tail -n 20 agent.log moto.log >&2 || true; exit 1; }
}
trap finish EXIT
trap 'failed=interrupted; exit 1' INT TERM

say() { printf '\n# %s\n' "$*"; }
show() { printf '$ %s\n' "$*"; timeout 30 "$@"; }

# Four ports that are free; nothing here needs to be at a known place.
ports=$("$bin/python" -c '
import socket
held = [socket.socket() for _ in range(4)]
for one in held: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))')
# shellcheck disable=SC2086  # four words
set -- $ports

cat > config.yaml <<YAML
control: {socket: ./agent.sock}
admin: {listen: ["127.0.0.1:$1"]}
metadata: {listen: ["127.0.0.1:$2"]}
issuer: {url: "http://127.0.0.1:$3", listen: ["127.0.0.1:$3"], state: ./issuer}
identities:
  - name: s3-reader
    source: {type: issuer, subject: "system:serviceaccount:demo:s3-reader"}
    provider: {type: aws, roleArn: "arn:aws:iam::123456789012:role/s3-reader", region: eu-west-1, endpoint: "http://127.0.0.1:$4"}
    serve: {dialects: [container]}
    sinks: [{type: files, directory: ./files}]
YAML

# Clients see what the demonstration gives them, and nothing that lies about on this machine.
unset AWS_PROFILE AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
export HOME="$PWD" AWS_CONFIG_FILE=none AWS_PAGER='' AWS_ENDPOINT_URL="http://127.0.0.1:$4" WI_AGENT_CONFIG=config.yaml
PATH="$bin:$PATH"

say 'moto plays AWS'
moto_server -H 127.0.0.1 -p "$4" > moto.log 2>&1 &
moto=$!
timeout 60 python -c '
import socket, sys, time
while True:
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()
        break
    except OSError:
        time.sleep(0.1)' "$4" || { failed='moto did not start'; exit 1; }

say 'the agent starts, exchanges a token of its own issuer for a session, and writes and serves it'
wi-agent run 2> agent.log &
agent=$!
show wi-agent wait --timeout 20
show wi-agent status
show ls files

# Who AWS says we are, and which way botocore took its credentials.
cat > whoami.py <<'PYTHON'
import sys

import boto3

session = boto3.Session()
found = session.get_credentials()
print(session.client("sts").get_caller_identity()["Arn"], "by", found.method, found.access_key)
sys.exit(0 if found.method == sys.argv[1] else f"that was not {sys.argv[1]}")
PYTHON

say 'by the endpoint: boto3, then the aws command line'
printf '$ %s\n' "eval \"\$(wi-agent env s3-reader --via endpoint)\""
eval "$(wi-agent env s3-reader --via endpoint)"
show python whoami.py container-role
show aws sts get-caller-identity --query Arn --output text
show aws s3 mb s3://demo
show aws s3 ls

say 'by files: the SDK reads the token and does the exchange itself'
printf '$ %s\n' "eval \"\$(wi-agent env s3-reader --via files)\""
eval "$(wi-agent env s3-reader --via files)"
show python whoami.py assume-role-with-web-identity
show aws sts get-caller-identity --query Arn --output text

say 'by files: the session that the agent took, for processes shorter than it'
unset AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_ARN AWS_ROLE_SESSION_NAME
printf '$ %s\n' 'export AWS_SHARED_CREDENTIALS_FILE=files/credentials'
export AWS_SHARED_CREDENTIALS_FILE=files/credentials
show python whoami.py shared-credentials-file

say 'a renewal, now and not when due: the next process gets other keys'
before=$(sed -n 's/^aws_access_key_id *= *//p' files/credentials)
show wi-agent renew s3-reader
show python whoami.py shared-credentials-file
[ "$before" != "$(sed -n 's/^aws_access_key_id *= *//p' files/credentials)" ] || { failed='the renewal brought the same keys'; exit 1; }

say 'every link from source to endpoint, and what a real AWS would have to trust'
unset AWS_SHARED_CREDENTIALS_FILE
show wi-agent doctor

say 'the agent stops within two seconds and leaves the files as they are'
kill "$agent"
wait "$agent" || { failed='the agent did not stop as it should'; exit 1; }
agent=
test -s files/token
failed=
printf '\nevery step worked; what was made lies in %s\n' "$PWD"

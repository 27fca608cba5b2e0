"""Makes the Secret fourfold-s3 with an S3 account of random keys, if there is none. Standard library only."""

import json
import secrets
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NAMESPACE = (ACCOUNT / "namespace").read_text()

secret = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "fourfold-s3", "labels": {"app.kubernetes.io/part-of": "fourfold"}},
    "stringData": {
        "AWS_ACCESS_KEY_ID": f"fourfold{secrets.token_hex(8)}",
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(32),
    },
}
request = urllib.request.Request(
    f"https://kubernetes.default.svc/api/v1/namespaces/{NAMESPACE}/secrets",
    data=json.dumps(secret).encode(),
    headers={
        "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
        "Content-Type": "application/json",
    },
)
context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
try:
    with urllib.request.urlopen(request, context=context, timeout=30):
        print("made the Secret fourfold-s3")
except urllib.error.HTTPError as error:
    if error.code != 409:
        sys.exit(
            f"cannot make the Secret fourfold-s3: {error.code} {error.read().decode('utf-8', 'replace')}"
        )
    print("there is a Secret fourfold-s3 already")

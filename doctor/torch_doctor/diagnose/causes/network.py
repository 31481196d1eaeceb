"""Downloads: hosts that are not reached, certificates, limits, services without a key."""

from __future__ import annotations

import ipaddress

from torch_doctor.diagnose.cause import Cause, Seen, Signature, Verdict, register, with_message
from torch_doctor.model import Remediation


def unreachable(seen: Seen, verdict: Verdict) -> Verdict | None:
    """Which host, where the text names it; a proxy that refuses is reached at least."""
    host = seen.groups.get("host", "")
    text = seen.log.lines[seen.index].text
    if "ProxyError" in text or "Tunnel connection failed" in text:
        return with_message(
            verdict,
            f"the proxy refused the connection{f' to {host}' if host else ''}",
            Remediation(
                "Correct the proxy's address and credentials, and except hosts that need none",
                (
                    "env | grep -i proxy",
                    "export HTTPS_PROXY=http://USER:PASSWORD@PROXY:PORT NO_PROXY=localhost,127.0.0.1",
                ),
            ),
        )
    where = f"{host} was not reached" if host else "a download failed"
    if _name_failed(text):
        why = "its name does not resolve"
    elif "refused" in text:
        why = "it refused the connection: nothing listens there, or a firewall answers"
    else:
        why = "no route, a firewall, or no answer in time"
    if _is_near(host):
        return with_message(verdict, f"{where} ({why}): a host of your own network, and not a download", _NEAR)
    return with_message(verdict, f"{where} ({why}): this container or node has no working network to the outside")


def too_many(seen: Seen, verdict: Verdict) -> Verdict | None:
    """The hub is asked less with a cache; a service of another kind wants pauses."""
    host = seen.groups.get("host", "")
    if not host or "huggingface" in host or host.endswith("hf.co"):
        return verdict
    return with_message(
        verdict,
        f"{host} refused for too many requests (429)",
        Remediation(
            "Ask less often or from fewer ranks, wait as long as its Retry-After says, and keep the answers",
            (
                "time.sleep(float(response.headers.get('Retry-After', 30)))",
                "if rank == 0: fetch()\ntorch.distributed.barrier()",
            ),
        ),
    )


_NEAR = Remediation(
    "See that the service runs and on which port, and that this container is on its network; localhost is the "
    "container itself",
    (
        "getent hosts HOST; curl -sv http://HOST:PORT",
        "docker run --network NETWORK ...  # docker network ls shows them",
        "docker run --add-host host.docker.internal:host-gateway ...  # for a service on the Docker host",
    ),
)


def _is_near(host: str) -> bool:
    """True for a private address, and for a name without a domain."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host != "" and "." not in host


def _name_failed(text: str) -> bool:
    """True where the text says that a name was not resolved."""
    return any(
        words in text
        for words in (
            "name resolution",
            "Name or service not known",
            "Failed to resolve",
            "nodename nor",
            "resolve host",
        )
    )


register(
    Cause(
        "FS243",
        "download-host-not-reached",
        "A file was to be downloaded, and its host was not reached.",
        "Compute nodes and hardened containers often have no network to the outside, no DNS, or need a proxy.",
        "a download failed: this container or node has no working network to the outside",
        Remediation(
            "Download on a machine with network into a folder that is mounted (HF_HOME, TORCH_HOME), and run offline; or set "
            "the proxy or DNS",
            (
                "curl -sI https://huggingface.co | head -1; getent hosts huggingface.co",
                "docker run -v ~/.cache/huggingface:/hf -e HF_HOME=/hf -e HF_HUB_OFFLINE=1 -v ~/.cache/torch:/th -e TORCH_HOME=/th ...",
                "docker run --dns 8.8.8.8 -e HTTPS_PROXY=http://PROXY:PORT ...",
            ),
        ),
        (
            Signature(
                ("ConnectionPool(host='", "urlopen error"),
                "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
                "urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed>",
                r"^(?![^\n]*CERTIFICATE_VERIFY_FAILED)(?:[\w.]*Error|[\w.]*Exception)\b[^\n]*?(?:ConnectionPool\(host='(?P<host>[^']+)'"
                r"|urlopen error)[^\n]*(?:name resolution|Name or service not known|Failed to resolve|nodename nor|Network is "
                r"unreachable|No route to host|[Cc]onnection refused|timed out|Tunnel connection failed|ProxyError)",
                source="requests, urllib3 1.26 and 2.x, urllib",
            ),
            Signature(
                ("Could not resolve host: ", "unable to resolve host address"),
                "curl: (6) Could not resolve host: huggingface.co",
                "Could not resolve hostname of node1",
                r"^(?:curl: \(6\) |wget: |fatal: [^\n]*: )(?:Could not resolve host: |unable to resolve host address ['\u2018]?)"
                r"(?P<host>[\w.-]+)",
                source="curl 7 and 8, wget, git",
            ),
            Signature(
                "Could not connect to the endpoint URL",
                'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://b.s3.amazonaws.com/x"',
                "Could not connect to the endpoint",
                r"Could not connect to the endpoint URL: \"https?://(?P<host>[^/\"]+)",
                source="botocore 1.x",
            ),
        ),
        judge=unreachable,
    ),
    Cause(
        "FS244",
        "certificate-not-trusted",
        "The certificate of a download server is not trusted here.",
        "A proxy that inspects TLS signs with a company's own authority, or the image has no certificates.",
        "the server's certificate is not trusted here: a proxy that inspects TLS, or an image without CA certificates",
        Remediation(
            "Hand the authority's certificate to the process, or install ca-certificates; never switch verification off",
            (
                "export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt; export REQUESTS_CA_BUNDLE=$SSL_CERT_FILE",
                "apt-get install -y ca-certificates && update-ca-certificates",
                "openssl s_client -connect huggingface.co:443 -showcerts </dev/null | grep -i issuer",
            ),
        ),
        (
            Signature(
                "CERTIFICATE_VERIFY_FAILED",
                "urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get "
                "local issuer certificate (_ssl.c:1006)>",
                "certificate verified",
                source="python 3.8 to 3.14, OpenSSL",
            ),
            Signature(
                ("SSL certificate problem: ", "server certificate verification failed"),
                "curl: (60) SSL certificate problem: unable to get local issuer certificate",
                "SSL certificate problem",
                source="curl 7 and 8, git with OpenSSL or GnuTLS",
            ),
        ),
        explains=("FS240", "FS243"),
    ),
    Cause(
        "FS245",
        "download-rate-limited",
        "A server refused for too many requests.",
        "Many ranks or jobs behind one address ask at once, or without a token.",
        "the server refused for too many requests (429)",
        Remediation(
            "Download once, on one rank, into a shared cache; log in, which raises the limit",
            ("hf download REPO", "export HF_HUB_OFFLINE=1  # for the other ranks", "docker run -e HF_TOKEN ..."),
        ),
        (
            Signature(
                "429 Client Error",
                "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/x",
                "429 clients",
                r"429 Client Error: Too Many Requests(?: for url: https?://(?P<host>[^/\s]+))?",
                source="requests, huggingface_hub",
            ),
        ),
        judge=too_many,
        explains=("FS240",),
    ),
    Cause(
        "FS246",
        "tracker-without-key",
        "The experiment tracker has no key, and no terminal to ask for one.",
        "Containers and batch jobs do not see the login of the home folder.",
        "wandb has no API key here, and no terminal to ask for one",
        Remediation(
            "Hand the key over, or log offline and send it later",
            ("docker run -e WANDB_API_KEY ...", "export WANDB_MODE=offline  # then: wandb sync wandb/offline-run-*"),
        ),
        (
            Signature(
                "api_key not configured (no-tty)",
                "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
                "api_key configured",
                source="wandb 0.12 to 0.23",
            ),
        ),
    ),
    Cause(
        "FS249",
        "cloud-credentials-missing",
        "There are no credentials for the cloud storage.",
        "Containers and batch jobs do not see the profile of the home folder; a role is tied to the machine or pod.",
        "there are no credentials for the cloud storage in this process ({what})",
        Remediation(
            "Hand the credentials or the role to the container",
            (
                "docker run -v ~/.aws:/root/.aws:ro -e AWS_PROFILE ...",
                "docker run -e AWS_ACCESS_KEY_ID -e AWS_SECRET_ACCESS_KEY -e AWS_SESSION_TOKEN ...",
                "aws sts get-caller-identity",
            ),
        ),
        (
            Signature(
                ("NoCredentialsError", "DefaultCredentialsError", "Unable to locate credentials"),
                "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
                "the credentials were located",
                r"(?P<what>Unable to locate credentials|DefaultCredentialsError|NoCredentialsError)",
                source="botocore 1.x, google-auth 2.x",
            ),
        ),
    ),
)

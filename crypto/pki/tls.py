"""TLS for gRPC, both sides authenticated by the consortium's authority.

Guarantees: no connection without a certificate of the authority on both sides; the client checks the server's host
name, and only coordinators are certified for one. Leaves it to the services to read the caller's identity from the
connection (`Trust.identify` on gRPC's `x509_pem_cert`) and to refuse roles and revoked certificates: a TLS library
knows neither.
"""

from __future__ import annotations

import grpc

from crypto.errors import CertificateError
from crypto.pki.certificates import Credential
from crypto.pki.identity import Role


def server_credentials(credential: Credential) -> grpc.ServerCredentials:
    """Serve as a coordinator; callers without a certificate of the authority are refused. Raises `CertificateError`."""
    if credential.identity.role is not Role.COORDINATOR:
        msg = f"only a coordinator serves, not {credential.identity}; give the coordinator's certificate"
        raise CertificateError(msg)
    return grpc.ssl_server_credentials(
        [(credential.key_pem, credential.certificate_pem)],
        root_certificates=credential.authority_pem,
        require_client_auth=True,
    )


def channel_credentials(credential: Credential) -> grpc.ChannelCredentials:
    """Call a coordinator as this silo or operator. Raises `CertificateError` for a coordinator's own certificate."""
    if credential.identity.role is Role.COORDINATOR:
        msg = "a coordinator does not call; give the certificate of a silo or an operator"
        raise CertificateError(msg)
    return grpc.ssl_channel_credentials(
        root_certificates=credential.authority_pem,
        private_key=credential.key_pem,
        certificate_chain=credential.certificate_pem,
    )

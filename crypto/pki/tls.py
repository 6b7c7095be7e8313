"""TLS for gRPC, both sides authenticated by the consortium's authority.

Guarantees: both sides of a connection have a certificate of the authority. The client checks the server's host name,
and only coordinators are certified for one. A TLS library knows no roles, so the services read the caller's
identity from the connection (`Trust.identify` on gRPC's `x509_pem_cert`) and refuse wrong ones.
"""

from __future__ import annotations

import grpc

from crypto.errors import CertificateError
from crypto.pki.certificates import Credential
from crypto.pki.identity import Role


def server_credentials(credential: Credential) -> grpc.ServerCredentials:
    """Return a coordinator's credentials, which refuse callers without a certificate of the authority.

    Every handshake shows the certificate and trusts the roots as they are then.

    Raises `CertificateError` for any other role.
    """
    if credential.identity.role is not Role.COORDINATOR:
        msg = f"only a coordinator may serve, not {credential.identity}; give the coordinator's certificate"
        raise CertificateError(msg)
    shown = _configuration(credential)
    used = [shown]

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """What is new since the handshake before this one."""
        now = _configuration(credential)
        if now == used[0]:
            return None
        used[0] = now
        return grpc.ssl_server_certificate_configuration([now[:2]], root_certificates=now[2])

    return grpc.dynamic_ssl_server_credentials(
        grpc.ssl_server_certificate_configuration([shown[:2]], root_certificates=shown[2]),
        renewed,  # type: ignore[arg-type]  # None says that nothing changed (grpc's documentation of the function)
        require_client_authentication=True,
    )


def _configuration(credential: Credential) -> tuple[bytes, bytes, bytes]:
    return credential.key_pem, credential.chain_pem, credential.trust.bundle.roots_pem


def channel_credentials(credential: Credential) -> grpc.ChannelCredentials:
    """Return the credentials with which this silo or operator calls. Raises `CertificateError` for a coordinator."""
    if credential.identity.role is Role.COORDINATOR:
        msg = "a coordinator makes no calls; give the certificate of a silo or an operator"
        raise CertificateError(msg)
    return grpc.ssl_channel_credentials(
        root_certificates=credential.trust.bundle.roots_pem,
        private_key=credential.key_pem,
        certificate_chain=credential.chain_pem,
    )


def handshake_fault(details: str) -> str:
    """Return what to check if gRPC's words on a failed call are about TLS; empty if they are not.

    A name that does not fit and an authority that does not fit are told apart: the fix is another one.
    """
    if "Hostname Verification" in details:
        return (
            "the coordinator's certificate does not name this address: write a host name or IP address with which it"
            " was enrolled (`--host`), or enrol it again with this one; the authority has nothing to do with it"
        )
    if any(word in details for word in ("CERTIFICATE", "andshake", "erification")):
        return (
            "the TLS handshake fails: check that authority.pem is the same as the coordinator's, and that no"
            " certificate has expired"
        )
    return ""

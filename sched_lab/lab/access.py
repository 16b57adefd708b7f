"""Who may ask a server: the port and TLS, a token or a certificate, and the names by which it may be called."""

# A module, written by hand.

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import ipaddress
import logging
import os
import secrets
import socket
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from .frames import InputError, OutputError

__all__ = ['Access', 'listen']

LOG = logging.getLogger("sched_lab.serve")


def shown_by(authorization: str) -> bytes:
    """The secret in a header: a bearer token, or the password of "Basic"; empty if none."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, ValueError):
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
    return b""


class Secret:
    """A token in a file, read again when the file changes.

    Parameters
    ----------
    path : the file; white space around the token does not count

    Raises
    ------
    InputError : it cannot be read, or is empty
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp = (0, 0, 0)  # what changes when the file is written or replaced, through links as well
        self.token = b""
        try:
            is_empty = not self.current()
        except OSError as error:
            raise InputError(f"it cannot be read: {error.strerror}", file=path) from error
        if is_empty:
            raise InputError("there is no token in it", file=path,
                             mend="write for instance 32 random bytes in hexadecimal")

    def current(self) -> bytes:
        """The token as the file has it now."""
        found = os.stat(self.path)
        stamp = found.st_mtime_ns, found.st_ino, found.st_size
        if stamp != self.stamp:
            self.token = self.path.read_bytes().strip()
            self.stamp = stamp
        return self.token

    def is_shown_by(self, authorization: str) -> bool:
        """Whether a header shows the token; nobody does while the file cannot be read."""
        try:
            token = self.current()
        except OSError as error:
            LOG.error("the token cannot be read: %s", error)
            return False
        return bool(token) and hmac.compare_digest(token, shown_by(authorization))


def own_secret() -> Secret:
    """The token of this user's servers, made at the first start, in a file that no other may read.

    Raises
    ------
    OutputError : it cannot be written
    """
    path = user_state_path("sched_lab") / "token"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=path.parent)
        try:
            with open(descriptor, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)  # whole, or not at all; an earlier one stays
        finally:
            os.unlink(draft)
    except OSError as error:
        raise OutputError(f"{path}: no token can be written ({error.strerror}); give --token-file "
                          "or --client-ca, or --insecure to ask nobody") from error
    return Secret(path)


class Refusal(Exception):
    """A request that is not answered.

    Parameters
    ----------
    status : of HTTP
    why : a sentence for the caller
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Guard:
    """Who may ask.

    A page in a browser can send requests to this machine, and by a name of its own that resolves
    to this machine even read the answers. It can hide neither the name nor its own origin.

    Parameters
    ----------
    secret : the token that a caller shows, if any
    needs_certificate : whether a caller has to show a certificate, which TLS has checked
    is_insecure : whether anybody may do anything
    hosts : names by which we may be called, besides addresses; None for any
    is_local : whether of all addresses only those of this machine are ours
    """

    secret: Secret | None = None
    needs_certificate: bool = False
    is_insecure: bool = False
    hosts: frozenset[str] | None = frozenset()
    is_local: bool = True

    @property
    def asks(self) -> bool:
        """Whether callers have to show something."""
        return self.secret is not None or self.needs_certificate

    def check_names(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Refuse a request that was sent to somebody else, or by a page of somebody else.

        Raises
        ------
        Refusal : it was
        """
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            raise Refusal(400, "give one Host")
        host = hosts[0].decode("latin-1").lower()
        if not self.is_ours(host):
            raise Refusal(421, f"{host!r:.100} is no name of this server; --allow-host makes it one")
        for name, value in headers:
            if name == b"origin" and value.decode("latin-1").lower().partition("://")[2] != host:
                raise Refusal(403, "pages of other servers may not ask")

    def is_ours(self, host: str) -> bool:
        """Whether a name, perhaps with a port, is one of ours."""
        name = host[1:].partition("]")[0] if host[:1] == "[" else host.partition(":")[0]
        if self.hosts is None or name in self.hosts or name == "localhost":
            return True
        try:
            return ipaddress.ip_address(name).is_loopback or not self.is_local
        except ValueError:
            return False

    def admit(self, authorization: str, has_certificate: bool) -> None:
        """Refuse whoever shows neither the token nor, if one is asked for, a certificate.

        Raises
        ------
        Refusal : nothing is shown, or the wrong thing
        """
        if self.needs_certificate and not has_certificate:
            raise Refusal(401, "a client certificate is asked for")
        if self.secret and not self.secret.is_shown_by(authorization):
            raise Refusal(401, f"the token in {self.secret.path.name} is missing, or is another")


@dataclass(frozen=True)
class Access:
    """Where to listen, and who may ask, as the options of a command say it.

    Parameters
    ----------
    host, port : port 0 for any that is free
    token_file : file with the token that callers show
    certificate, key : files in PEM; without them, HTTP in the clear
    client_ca : file with the authorities whose clients may ask
    hosts : names, besides addresses, by which callers may call us
    is_insecure : whether anybody may ask
    """

    host: str = "127.0.0.1"
    port: int = 0
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    hosts: Sequence[str] = ()
    is_insecure: bool = False

    def check(self, harm: str) -> None:
        """Refuse what does not go together, or lets anybody in.

        Parameters
        ----------
        harm : what anybody could do who reaches us

        Raises
        ------
        InputError : naming the option
        """
        if not self.host.strip():
            raise InputError("--host is empty", mend="give an address, such as 127.0.0.1")
        if (self.certificate is None) != (self.key is None):
            raise InputError("--tls-cert and --tls-key go together", mend="give both, or neither")
        if self.client_ca and not self.certificate:
            raise InputError("--client-ca needs TLS", mend="give --tls-cert and --tls-key, too")
        if not (self.token_file or self.client_ca or self.is_insecure or is_loopback(self.host)):
            raise InputError(f"whoever reaches {self.host} could {harm}", value=self.host,
                             mend="give --token-file or --client-ca, or --insecure if a network "
                             "policy lets nobody in who may not ask")

    def guard(self, *, asks: bool) -> Guard:
        """Who may ask.

        Parameters
        ----------
        asks : whether a token is made if nothing else is said
        """
        secret = Secret(self.token_file) if self.token_file else None
        if asks and not (secret or self.client_ca or self.is_insecure):
            secret = own_secret()
        is_local = is_loopback(self.host)
        is_asked = bool(secret or self.client_ca)
        names = frozenset(name.lower() for name in (self.host, *self.hosts))
        return Guard(secret, self.client_ca is not None, self.is_insecure,
                     None if is_asked and not is_local else names, is_local)

    def context(self) -> ssl.SSLContext | None:
        """TLS as asked for; None for HTTP in the clear.

        Raises
        ------
        InputError : naming the file that cannot be used
        """
        if self.certificate is None or self.key is None:
            return None
        check_pem(self.certificate, "CERTIFICATE")
        check_pem(self.key, "PRIVATE KEY")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            self.load_own(context)
        except (ssl.SSLError, ValueError) as error:
            raise InputError(f"TLS cannot be used with the key {self.key}: {error}",
                             file=self.certificate) from error
        if self.client_ca:
            check_pem(self.client_ca, "CERTIFICATE")
            context.verify_mode = ssl.CERT_OPTIONAL  # probes show none
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                raise InputError(f"TLS cannot be used: {error}", file=self.client_ca) from error
        return context

    def load_own(self, context: ssl.SSLContext) -> None:
        """Load our certificate and key, which may not have a password."""
        assert self.certificate is not None
        context.load_cert_chain(self.certificate, self.key, lambda: "")


def check_pem(file: Path, kind: str) -> None:
    """Refuse a file that is not there, or has nothing of a kind in it.

    Raises
    ------
    InputError : naming the file
    """
    try:
        text = file.read_bytes()
    except OSError as error:
        raise InputError(f"TLS cannot be used: {error.strerror}", file=file) from error
    if f"{kind}-----".encode() not in text:
        raise InputError(f"TLS cannot be used: there is no {kind.lower()} in it", file=file,
                         mend="give a file in PEM")


@dataclass(frozen=True)
class Listener:
    """A port that is ours, and who may come in.

    Parameters
    ----------
    access : as it was asked for
    guard : who may ask
    context : of TLS, if it is used
    socket : that listens
    """

    access: Access
    guard: Guard
    context: ssl.SSLContext | None
    socket: socket.socket

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    @property
    def port(self) -> int:
        """Number of the port."""
        return int(self.socket.getsockname()[1])

    def renew(self) -> None:
        """Load the certificate again, which may be another one, for the connections to come."""
        if self.context:
            with contextlib.suppress(OSError, ValueError):  # half written: next time
                self.access.load_own(self.context)


def listen(access: Access, harm: str, *, asks: bool = False) -> Listener:
    """Take the port, before anything is made that would stay behind if another has it.

    Parameters
    ----------
    access : where, and who may ask
    harm : what anybody could do who reaches us
    asks : whether a token is made if nothing else is said

    Raises
    ------
    InputError : nobody can listen there, or a file cannot be used
    """
    access.check(harm)
    context = access.context()
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    try:
        listening = socket.create_server((access.host, access.port), family=family, backlog=256)
    except (OSError, OverflowError, ValueError) as error:
        where = f"{access.host}, port {access.port}"
        raise InputError(f"cannot listen on {where}: {error}") from error
    try:
        return Listener(access, access.guard(asks=asks), context, listening)
    except BaseException:
        listening.close()
        raise

"""Which addresses messages may go to. Whoever asks for a plan must not make the service speak to its own network."""

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import httpcore2

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""RFC 6052: an IPv4 address in the last four bytes."""
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that IANA has given out for the public network (RFC 4291, section 2.4); what else is public stands for IPv4."""
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")
"""RFC 9637; within the above, and unknown to older tables."""


class Refused(Exception):
    """A private address; no message goes there, now or later."""


class Allowed:
    """Public addresses, and the networks that this installation names."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        """Allow `networks` beside what is public."""
        self._networks = tuple(networks)

    def __call__(self, address: Address) -> bool:
        """Whether a message may go to an address, by whatever way it is written."""
        faces = tuple(_faces(address))
        named = any(face in network for face in faces for network in self._networks if network.version == face.version)
        return named or all(_public(face) for face in faces)

    def check_url(self, url: str) -> str | None:
        """What is wrong with a URL as far as it shows without looking the name up; None when nothing is."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return "is no URL"
        if not host:
            return "names no host"
        if parts.username is not None or parts.password is not None:
            return "holds a user name or a password; messages are signed instead"
        try:
            literal = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None
        return None if self(literal) else "is a private address"


def _public(address: Address) -> bool:
    """Whether an address is one of the public network, by itself or for an IPv4 address."""
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None or address in _NAT64:
        return True
    return address in _UNICAST and address not in _DOCUMENTATION


def _faces(address: Address) -> Iterable[Address]:
    """An address and those that it stands for behind a translator."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        for inner in (address.ipv4_mapped, address.sixtofour):
            if inner is not None:
                yield inner
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.teredo is not None:
            yield from address.teredo


class PublicBackend(httpcore2.AsyncNetworkBackend):
    """Connects to the very address that was checked.

    A name that answers differently a moment later (DNS rebinding) gains nothing. The name stays in the `Host`
    header and in the TLS handshake.
    """

    def __init__(self, allowed: Allowed) -> None:
        """Check with `allowed`."""
        self._allowed = allowed
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to a host whose every address is allowed."""
        found = await self._addresses(host, port)
        bad = [address for address in found if not self._allowed(address)]
        if bad or not found:
            raise Refused(f"{host} is a private address" if bad else f"{host} has no address")
        return await self._inner.connect_tcp(str(found[0]), port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Never."""
        raise Refused("sockets of this machine take no messages")

    async def sleep(self, seconds: float) -> None:
        """Between tries of one connection."""
        await self._inner.sleep(seconds)

    @staticmethod
    async def _addresses(host: str, port: int) -> list[Address]:
        try:
            infos = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host} cannot be looked up") from error
        return [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in infos]

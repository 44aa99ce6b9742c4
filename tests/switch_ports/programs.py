# SPDX-License-Identifier: Apache-2.0
# Servers and clients of programs behind NAT. Arguments: what to do, an address, further ones.
#
# serve ADDRESS PORT     FTP with data connections to PORT, DNS, TFTP, and calls over UDP; prints 'ready'
# ftp|dns|call ADDRESS   a client; prints what it has received
# forge FROM PORT TO PORT    sends TCP segments that fit no window, with scapy
import contextlib
import ftplib
import socket
import struct
import sys
import threading

PAGE = bytes(at % 251 for at in range(100_000))
ANSWER = "192.0.2.7"
BLOCK = 512
TIMEOUT_S = 20
# A server waits less than a client, which begins again.
SERVER_TIMEOUT_S = 5


def datagrams(address, port):
    """Returns a socket for datagrams."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.settimeout(TIMEOUT_S)
    bound.bind((address, port))
    return bound


def session(control, address, port):
    """Serves one FTP client (RFC 959), in the passive mode."""
    control.sendall(b"220 ready\r\n")
    listener = None
    for line in control.makefile("rb"):
        command = line.split()[0].upper()
        if command == b"PASV":
            listener = socket.create_server((address, port))
            listener.settimeout(SERVER_TIMEOUT_S)
            numbers = ",".join(address.split(".")) + f",{port >> 8},{port & 255}"
            control.sendall(f"227 Entering Passive Mode ({numbers}).\r\n".encode())
        elif command == b"RETR":
            control.sendall(b"150 data\r\n")
            data, _ = listener.accept()
            data.sendall(PAGE)
            data.close()
            listener.close()
            control.sendall(b"226 done\r\n")
        elif command == b"QUIT":
            control.sendall(b"221 bye\r\n")
            return
        else:
            control.sendall(b"230 done\r\n")


def serve_ftp(address, port):
    """Serves FTP clients, one after the other."""
    listener = socket.create_server((address, 21))
    yield
    while True:
        control, _ = listener.accept()
        control.settimeout(SERVER_TIMEOUT_S)
        # A client that gives up begins a session again.
        with control, contextlib.suppress(OSError):
            session(control, address, port)


def serve_dns(address):
    """Answers each query with one address (RFC 1035, section 4.1)."""
    bound = datagrams(address, 53)
    bound.settimeout(None)
    yield
    while True:
        query, client = bound.recvfrom(BLOCK)
        header = query[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0)
        record = struct.pack("!HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(ANSWER)
        bound.sendto(header + query[12:] + record, client)


def serve_tftp(address):
    """Sends the page from a port of its own for each request (RFC 1350)."""
    bound = datagrams(address, 69)
    bound.settimeout(None)
    yield
    while True:
        _, client = bound.recvfrom(BLOCK)
        own = datagrams(address, 0)
        own.settimeout(SERVER_TIMEOUT_S)
        # A client that gives up, or that has sent its request twice, acknowledges no further block.
        with own, contextlib.suppress(OSError):
            for block in range(len(PAGE) // BLOCK + 1):
                data = PAGE[block * BLOCK : (block + 1) * BLOCK]
                own.sendto(struct.pack("!HH", 3, block + 1) + data, client)
                own.recvfrom(BLOCK)


def serve_calls(address):
    """Registers a client, and calls it at the endpoint that its request came from."""
    bound = datagrams(address, 5060)
    bound.settimeout(None)
    answers = {b"REGISTER": [b"200", b"INVITE"], b"200": [b"BYE"]}
    yield
    while True:
        message, client = bound.recvfrom(BLOCK)
        for answer in answers.get(message, ()):
            bound.sendto(answer, client)


def serve(address, port):
    """Starts all servers."""
    servers = [serve_ftp(address, port), serve_dns(address), serve_tftp(address), serve_calls(address)]
    for server in servers:
        next(server)
    print("ready", flush=True)
    for server in servers[1:]:
        threading.Thread(target=next, args=(server, None), daemon=True).start()
    next(servers[0])


def ftp(address):
    """Downloads the page in the passive mode."""
    client, parts = ftplib.FTP(), []
    client.connect(address, 21, TIMEOUT_S)
    client.login()
    client.retrbinary("RETR page", parts.append)
    client.quit()
    print("page" if b"".join(parts) == PAGE else "damaged")


def dns(address):
    """Asks for an address, each time from another port."""
    for number in range(5):
        bound = datagrams("0.0.0.0", 0)
        name = b"\x04host\x07example\x00"
        bound.sendto(struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 0) + name + struct.pack("!HH", 1, 1), (address, 53))
        answer = bound.recv(BLOCK)
        print(struct.unpack("!H", answer[:2])[0], socket.inet_ntoa(answer[-4:]))


def call(address):
    """Registers, and accepts a call."""
    # The server of this host has port 5060.
    bound = datagrams("0.0.0.0", 0)
    bound.sendto(b"REGISTER", (address, 5060))
    while True:
        message = bound.recv(BLOCK)
        print(message.decode())
        if message == b"INVITE":
            bound.sendto(b"200", (address, 5060))
        elif message == b"BYE":
            return


def forge(source, from_port, destination, to_port):
    """Sends segments with sequence numbers and acknowledgements that neither side uses: resets, data, a SYN and an acknowledgement."""
    from scapy.all import IP, TCP, Raw, send

    network = IP(src=source, dst=destination)
    for flags in ["R", "RA", "PA", "A", "FA", "S"]:
        segment = TCP(sport=int(from_port), dport=int(to_port), flags=flags, seq=0x12345678, ack=0x9ABCDEF0)
        send(network / segment / Raw(b"" if flags in ("S", "R", "RA") else b"forged"), verbose=0)
    print("sent")


def main():
    what, *arguments = sys.argv[1:]
    if what == "serve":
        serve(arguments[0], int(arguments[1]))
    else:
        {"ftp": ftp, "dns": dns, "call": call, "forge": forge}[what](*arguments)


main()

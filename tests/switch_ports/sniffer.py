# SPDX-License-Identifier: Apache-2.0
# Prints the TCP segments of one port of TCP that pass an interface, one a line in JSON, until the input ends and the interface is silent.
# Arguments: name of the interface, port.
import json
import select
import socket
import struct
import sys

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
SILENCE_S = 0.5


def segment(frame, port):
    """Returns the fields of a TCP segment over IPv4 without options or over IPv6, None for other frames."""
    kind = struct.unpack_from("!H", frame, 12)[0]
    if kind == 0x0800 and frame[14] == 0x45 and frame[23] == 6:
        traffic_class, start = frame[15], 34
        end = 14 + struct.unpack_from("!H", frame, 16)[0]
    elif kind == 0x86DD and frame[20] == 6:
        traffic_class, start = struct.unpack_from("!H", frame, 14)[0] >> 4 & 0xFF, 54
        end = 54 + struct.unpack_from("!H", frame, 18)[0]
    else:
        return None
    source, destination, sequence, acknowledgment, offset, flags, window = struct.unpack_from("!HHIIBBH", frame, start)
    if port not in (source, destination):
        return None
    data = start + (offset >> 4) * 4
    return {
        "is_from_server": source == port,
        "sequence": sequence,
        "acknowledgment": acknowledgment,
        "flags": flags,
        "window": window,
        "options": frame[start + 20 : data].hex(),
        "traffic_class": traffic_class,
        "data": frame[data:end].hex(),
    }


def main():
    interface, port = sys.argv[1], int(sys.argv[2])
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 128 << 20)
    sniffer.bind((interface, ETH_P_ALL))
    print("ready", flush=True)
    is_ending = False
    while True:
        inputs = [sniffer] if is_ending else [sniffer, sys.stdin]
        ready, _, _ = select.select(inputs, [], [], SILENCE_S if is_ending else None)
        if sniffer in ready:
            found = segment(sniffer.recv(1 << 17), port)
            if found:
                print(json.dumps(found))
        elif sys.stdin in ready:
            is_ending = True
        else:
            break


main()

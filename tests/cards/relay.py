#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Carries frames between a tap, which QEMU makes, and two Unix datagram sockets: relay.py TAP OWN-SOCKET OTHER-SOCKET.

A tap has several queues, and QEMU's other network devices have one. The program ends when the tap does.
"""

import errno
import os
import select
import socket
import subprocess
import sys
import time

ETH_P_ALL = 3
PACKET_OUTGOING = 4
WAIT_S = 60
# Pause before a frame is sent again that its receiver has no space for.
PAUSE_S = 0.001


def wait_for(interface):
    """Waits until QEMU has made the tap, and sets it up."""
    deadline = time.monotonic() + WAIT_S
    while not os.path.exists(f"/sys/class/net/{interface}"):
        if time.monotonic() > deadline:
            sys.exit(f"relay: no interface {interface} after {WAIT_S} s")
        select.select([], [], [], 0.05)
    subprocess.run(["ip", "link", "set", interface, "up"], check=True)


def send_to_tap(frames, frame):
    """Sends a frame to the guest, and waits while the kernel has no space for it."""
    deadline = None
    while True:
        try:
            frames.send(frame)
            return
        except OSError as error:
            deadline = deadline or time.monotonic() + WAIT_S
            if error.errno != errno.ENOBUFS or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)


def main():
    """Runs the relay."""
    interface, own, other = sys.argv[1:]
    wait_for(interface)
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    frames.bind((interface, 0))
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(own)
    # A frame of the guest whose receiver has no space yet. The other direction continues meanwhile.
    waiting = None
    while True:
        sources = [datagrams] if waiting else [frames, datagrams]
        ready, _, _ = select.select(sources, [], [], PAUSE_S if waiting else None)
        try:
            if frames in ready:
                frame, address = frames.recvfrom(65536)
                if address[2] != PACKET_OUTGOING:
                    waiting = frame
            if waiting:
                try:
                    datagrams.sendto(waiting, socket.MSG_DONTWAIT, other)
                    waiting = None
                except BlockingIOError:
                    pass
            if datagrams in ready:
                send_to_tap(frames, datagrams.recv(65536))
        except OSError as error:
            sys.exit(f"relay: {error}")


main()

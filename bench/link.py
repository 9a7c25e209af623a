"""What stands between the program and a server in bench/remote.py: a link of some length and rate, and a bucket."""
import collections
import hashlib
import http.server
import multiprocessing
import os
import pathlib
import re
import socket
import socketserver
import threading
import time
import urllib.parse

PIECE = 256 << 10


def listen():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(256)
    return listener


class Link:
    """Passes TCP on to `port`: each byte arrives half a round trip later, and each connection carries `rate` bytes a second in
    each direction. A new connection costs a round trip. In a process of its own; `most` is how many connections were open at once."""

    def __init__(self, port, round_trip, rate):
        self.to, self.half, self.rate = port, round_trip / 2, rate
        self.now, self.peak = multiprocessing.Value("i", 0), multiprocessing.Value("i", 0)
        self.listener = listen()
        self.port = self.listener.getsockname()[1]
        self.process = multiprocessing.Process(target=self.serve, daemon=True)
        self.process.start()

    def most(self):
        """The most connections at once since the last call."""
        with self.peak.get_lock():
            most, self.peak.value = self.peak.value, 0
        return most

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            with self.now.get_lock(), self.peak.get_lock():
                self.now.value += 1
                self.peak.value = max(self.peak.value, self.now.value)
            for given, taken, wait in (client, server, 3 * self.half), (server, client, self.half):
                given.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.carry, args=(given, taken, wait, given is client), daemon=True).start()

    def carry(self, given, taken, wait, counts):
        """A connection's bytes one way. What is under way is bounded, as by a window of TCP, so that the sender is slowed down."""
        pieces, changed, window = collections.deque(), threading.Condition(), int(4 * self.half * self.rate) + 4 * PIECE
        under_way = 0

        def receive():
            nonlocal under_way
            late, piece = wait, b"x"
            while piece:
                with changed:
                    changed.wait_for(lambda: under_way < window)
                try:
                    piece = given.recv(PIECE)
                except OSError:
                    piece = b""
                with changed:
                    pieces.append((time.monotonic() + late, piece))
                    under_way += len(piece)
                    changed.notify_all()
                late = self.half

        threading.Thread(target=receive, daemon=True).start()
        free, piece = 0, b"x"
        while piece:
            with changed:
                changed.wait_for(lambda: pieces)
                due, piece = pieces.popleft()
            free = max(free, due)
            time.sleep(max(0, free - time.monotonic()))
            free += len(piece) / self.rate
            try:
                taken.sendall(piece)
            except OSError:
                piece = b""
            with changed:
                under_way -= len(piece)
                changed.notify_all()
        for end in (given, taken):
            try:
                end.shutdown(socket.SHUT_WR if end is taken else socket.SHUT_RD)
            except OSError:
                pass
        if counts:
            with self.now.get_lock():
                self.now.value -= 1


class Bucket(http.server.BaseHTTPRequestHandler):
    """S3 as far as copying goes. GET gives the files of `folder`; what is put is counted and dropped but for its end. Nothing is
    checked."""
    protocol_version = "HTTP/1.1"
    folder = None
    objects, uploads, lock = {}, {}, threading.Lock()

    def log_message(self, *_):
        pass

    def take(self):
        """The length of the body and its last bytes."""
        left = total = int(self.headers.get("content-length") or 0)
        room, end = bytearray(PIECE), b""
        while left:
            got = self.rfile.readinto1(memoryview(room)[:left])
            if not got:
                break
            left -= got
            if left < 1 << 20:
                end = (end + room[:got])[-(1 << 20):]
        return total, end

    def say(self, status, body=b"", **headers):
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self):
        if self.headers.get("expect"):
            self.send_response_only(100)
            self.end_headers()
        path, _, query = self.path.partition("?")
        arguments = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if self.command == "PUT":
            size, end = self.take()
            part = int(arguments.get("partNumber", 0))
            with self.lock:
                if part:
                    self.uploads[arguments["uploadId"]][0][part] = (size, end)
                else:
                    self.objects[path] = (size, end, self.meta())
            return self.say(200, ETag=f'"{part}"')
        if "uploads" in arguments:
            with self.lock:
                self.uploads[upload := str(len(self.uploads))] = ({}, self.meta())
            return self.say(200, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode())
        self.take()
        with self.lock:
            parts, meta = self.uploads[arguments["uploadId"]]
            ends = b"".join(end for _, (_, end) in sorted(parts.items())[-2:])
            self.objects[path] = (sum(size for size, _ in parts.values()), ends, meta)
        return self.say(200, b'<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>')

    do_POST = do_PUT

    def meta(self):
        return {name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}

    def do_GET(self):
        path = urllib.parse.unquote(self.path.partition("?")[0])
        given = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        held = self.objects.get(path)
        file = pathlib.Path(self.folder, path.rsplit("/", 1)[1])
        if held is None and not file.is_file():
            return self.say(404)
        size, end, meta = held or (file.stat().st_size, b"", {})
        first, last = (int(given[1]), min(int(given[2] or size), size - 1)) if given else (0, size - 1)
        etag = '"' + hashlib.md5(path.encode()).hexdigest() + '"'
        self.say(206 if given else 200, ETag=etag, Content_Length=str(last + 1 - first),
                 **({"Content_Range": f"bytes {first}-{last}/{size}"} if given else {}), **meta)
        if self.command == "HEAD":
            return None
        if held:
            self.wfile.write(end[first - size:][:last + 1 - first])
            return None
        self.wfile.flush()
        with open(file, "rb") as content:
            while first <= last:
                first += os.sendfile(self.connection.fileno(), content.fileno(), first, last + 1 - first)

    do_HEAD = do_GET


class Listener(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 256  # with the usual 5, connections that begin together wait a second

    def handle_error(self, *_):
        pass


def bucket(folder):
    """The port of a bucket that serves the files of `folder`, in a process of its own."""
    Bucket.folder = folder
    server = Listener(("127.0.0.1", 0), Bucket)
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]

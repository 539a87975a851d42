#!/usr/bin/env python3
"""Writes layout.txt: the cache in which huggingface_hub stores a small model, from a hub on this machine.

Run it with a Python that has `huggingface_hub` (layout.txt is from 2.4.0): `python make.py`.
"""

import hashlib
import json
import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Name, content, whether it is in LFS.
FILES = [
    ("additional_chat_templates/rag.jinja", b"{{ messages }}", False),
    ("config.json", b'{"architectures": []}', False),
    ("model.safetensors", b"weights", True),
    ("tokenizer.json", b"{}", False),
]


def digest(content, lfs):
    if lfs:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.startswith("/api/models/org/name/tree/"):
            tree = []
            for name, content, lfs in FILES:
                entry = {"type": "file", "path": name, "size": len(content), "oid": digest(content, False)}
                if lfs:
                    entry["lfs"] = {"oid": digest(content, True), "size": len(content), "pointerSize": 134}
                tree.append(entry)
            return self.reply(200, json.dumps(tree).encode(), Content_Type="application/json")
        if path.startswith("/api/models/org/name"):
            siblings = [{"rfilename": name, "blobId": "b" * 40, "size": len(content)} for name, content, _ in FILES]
            body = {"_id": "0", "id": "org/name", "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
            return self.reply(200, json.dumps(body).encode(), Content_Type="application/json")
        for name, content, lfs in FILES:
            if path == f"/org/name/resolve/{COMMIT}/{name}":
                tag = '"' + digest(content, lfs) + '"'
                known = {"X_Repo_Commit": COMMIT}
                if lfs:
                    known |= {"X_Linked_Etag": tag, "X_Linked_Size": str(len(content))}
                return self.reply(302, b"", Location=f"/storage/{name}", ETag=tag, **known)
            if path == f"/storage/{name}":
                return self.reply(200, content, ETag='"' + digest(content, lfs) + '"', X_Repo_Commit=COMMIT)
        self.reply(404, b"")

    do_HEAD = do_GET


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["HF_HUB_DISABLE_XET"] = "1"
    from huggingface_hub import snapshot_download

    lines = []
    with tempfile.TemporaryDirectory() as cache:
        snapshot_download("org/name", cache_dir=cache, endpoint=f"http://127.0.0.1:{server.server_port}", token=False)
        folder = Path(cache, "models--org--name")
        for path in folder.rglob("*"):
            name = path.relative_to(cache).as_posix()
            if "/trees/" in name:
                continue  # what it remembers of the hub
            if path.is_symlink():
                lines.append(f"{name} -> {os.readlink(path)}")
            elif path.is_file() and "refs/" in name:
                lines.append(f"{name} = {path.read_text()}")
            elif path.is_file():
                lines.append(name)
    Path(__file__).with_name("layout.txt").write_text("".join(line + "\n" for line in sorted(lines)))


main()

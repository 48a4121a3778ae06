"""pysmb, SMB 2.0.2 and SMB1 alone: it knows no encryption."""
import io
import os

from smb.SMBConnection import SMBConnection

REFUSED = "NotReadyError|not authenticated"


def connect(share, password):
    if share == os.environ["FOREIGN_SEALED"]:
        raise NotImplementedError("pysmb has no encryption")
    connection = SMBConnection(os.environ["FOREIGN_USER"], password, "everyday", "server", use_ntlm_v2=True, is_direct_tcp=True)
    connection.connect(os.environ["FOREIGN_HOST"], int(os.environ["FOREIGN_PORT"]), timeout=60)
    return Client(connection, share)


class Client:
    def __init__(self, connection, share):
        self.connection, self.share = connection, share

    def list(self, directory):
        return [entry.filename for entry in self.connection.listPath(self.share, directory or "/") if entry.filename not in (".", "..")]

    def mkdir(self, name):
        self.connection.createDirectory(self.share, name)

    def rmdir(self, name):
        self.connection.deleteDirectory(self.share, name)

    def write(self, name, data):
        self.connection.storeFile(self.share, name, io.BytesIO(data), timeout=120)

    def read(self, name):
        content = io.BytesIO()
        self.connection.retrieveFile(self.share, name, content, timeout=120)
        return content.getvalue()

    def rename(self, old, new):
        self.connection.rename(self.share, old, new)

    def append(self, name, data):
        size = self.connection.getAttributes(self.share, name).file_size
        self.connection.storeFileFromOffset(self.share, name, io.BytesIO(data), offset=size)

    def truncate(self, name, size):
        self.connection.storeFileFromOffset(self.share, name, io.BytesIO(b""), offset=size, truncate=True)
        if self.connection.getAttributes(self.share, name).file_size != size:
            raise NotImplementedError("pysmb truncates to 0 only")

    def delete(self, name):
        self.connection.deleteFiles(self.share, name)

    def write_many(self, directory, names):
        for name in names:
            self.write(f"{directory}/{name}", b"x")

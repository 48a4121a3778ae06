"""Samba's own client library, by its Python binding."""
import os

from samba import credentials, param
from samba.samba3 import libsmb_samba_internal as libsmb
from samba.samba3 import param as s3param

REFUSED = "LOGON_FAILURE|3221225581"

GENERIC_WRITE = 0x4000_0000
SHARE_ALL = 7
FILE_OPEN = 1


def connect(share, password):
    lp = s3param.get_context()
    lp.load(os.environ["FOREIGN_WORK"] + "/samba.conf")
    creds = credentials.Credentials()
    creds.guess(param.LoadParm())
    creds.set_username(os.environ["FOREIGN_USER"])
    creds.set_password(password)
    creds.set_kerberos_state(credentials.DONT_USE_KERBEROS)
    creds.set_smb_signing(credentials.SMB_SIGNING_REQUIRED)
    if share == os.environ["FOREIGN_SEALED"]:
        creds.set_smb_encryption(credentials.SMB_ENCRYPTION_REQUIRED)
    return Client(libsmb.Conn(os.environ["FOREIGN_HOST"], share, lp, creds))


class Client:
    def __init__(self, connection):
        self.connection = connection

    def list(self, directory):
        return [entry["name"] for entry in self.connection.list(directory.replace("/", "\\"))]

    def mkdir(self, name):
        self.connection.mkdir(name.replace("/", "\\"))

    def rmdir(self, name):
        self.connection.rmdir(name.replace("/", "\\"))

    def write(self, name, data):
        self.connection.savefile(name.replace("/", "\\"), data)

    def read(self, name):
        return self.connection.loadfile(name.replace("/", "\\"))

    def rename(self, old, new):
        self.connection.rename(old.replace("/", "\\"), new.replace("/", "\\"))

    def append(self, name, data):
        size = next(entry["size"] for entry in self.connection.list("") if entry["name"] == name)
        handle = self.connection.create(name, DesiredAccess=GENERIC_WRITE, ShareAccess=SHARE_ALL, CreateDisposition=FILE_OPEN)
        self.connection.write(handle, data, size)
        self.connection.close(handle)

    def truncate(self, name, size):
        raise NotImplementedError("the binding truncates by SMB1 only")

    def delete(self, name):
        self.connection.unlink(name.replace("/", "\\"))

    def write_many(self, directory, names):
        for name in names:
            self.connection.savefile(f"{directory}\\{name}", b"x")

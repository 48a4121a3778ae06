"""Features of the server as impacket drives them. Prints `ok NAME` or `not ok NAME` a line; exit status 1 if any was not."""
import io, os, sys

from impacket.dcerpc.v5 import lsad, lsat, srvs, transport
from impacket.dcerpc.v5.dtypes import MAXIMUM_ALLOWED
from impacket.smb3structs import SMB2_DIALECT_002, SMB2_DIALECT_21, SMB2_DIALECT_30, SMB2_DIALECT_311
from impacket.smbconnection import SessionError, SMBConnection

from peer_tests import run, test

PORT = int(os.environ["SMB_PORT"])
USER, PASSWORD, SHARE = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], os.environ["SMB_SHARE"]


def connect(dialect=None, password=PASSWORD, user=USER):
    connection = SMBConnection("127.0.0.1", "127.0.0.1", sess_port=PORT, preferredDialect=dialect, timeout=20)
    connection.login(user, password)
    return connection


@test
def every_dialect_logs_on_and_lists():
    for dialect in (SMB2_DIALECT_002, SMB2_DIALECT_21, SMB2_DIALECT_30, SMB2_DIALECT_311):
        connection = connect(dialect)
        assert connection.getDialect() == dialect, hex(connection.getDialect())
        connection.listPath(SHARE, "*")
        connection.logoff()


@test
def guests_anonymous_and_wrong_passwords_are_refused():
    for user, password in (("", ""), ("guest", ""), (USER, "wrong"), ("nobody", "x")):
        try:
            connection = connect(user=user, password=password)
            connection.connectTree(SHARE)
        except SessionError:
            continue
        raise AssertionError((user, "was let in"))


@test
def a_file_is_put_listed_got_and_deleted():
    connection = connect()
    content = os.urandom(1_500_000)
    connection.putFile(SHARE, "impacket.bin", io.BytesIO(content).read)
    sizes = {entry.get_longname(): entry.get_filesize() for entry in connection.listPath(SHARE, "*")}
    assert sizes["impacket.bin"] == len(content)
    got = io.BytesIO()
    connection.getFile(SHARE, "impacket.bin", got.write)
    assert got.getvalue() == content
    connection.deleteFile(SHARE, "impacket.bin")
    connection.logoff()


@test
def directories_are_made_and_removed():
    connection = connect()
    connection.createDirectory(SHARE, "made")
    connection.deleteDirectory(SHARE, "made")
    try:
        connection.deleteDirectory(SHARE, "made")
        raise AssertionError("twice")
    except SessionError as error:
        assert error.getErrorCode() == 0xC0000034, error
    connection.logoff()


def pipe(connection, name, interface):
    binding = transport.SMBTransport("127.0.0.1", filename=name, smb_connection=connection)
    rpc = binding.get_dce_rpc()
    rpc.connect()
    rpc.bind(interface)
    return rpc


@test
def srvsvc_lists_shares_and_tells_about_the_server():
    connection = connect()
    rpc = pipe(connection, r"\srvsvc", srvs.MSRPC_UUID_SRVS)
    shares = srvs.hNetrShareEnum(rpc, 1)["InfoStruct"]["ShareInfo"]["Level1"]["Buffer"]
    names = [share["shi1_netname"][:-1] for share in shares]
    assert SHARE in names and "IPC$" in names, names
    information = srvs.hNetrShareGetInfo(rpc, SHARE + "\0", 1)
    assert information["InfoStruct"]["ShareInfo1"]["shi1_netname"][:-1] == SHARE
    server = srvs.hNetrServerGetInfo(rpc, 101)["InfoStruct"]["ServerInfo101"]
    assert server["sv101_name"][:-1]
    connection.logoff()


@test
def lsarpc_translates_names_and_sids():
    connection = connect()
    rpc = pipe(connection, r"\lsarpc", lsat.MSRPC_UUID_LSAT)
    policy = lsad.hLsarOpenPolicy2(rpc, MAXIMUM_ALLOWED | lsat.POLICY_LOOKUP_NAMES)["PolicyHandle"]
    found = lsat.hLsarLookupNames(rpc, policy, [USER])
    sid = found["ReferencedDomains"]["Domains"][0]["Sid"].formatCanonical()
    rid = found["TranslatedSids"]["Sids"][0]["RelativeId"]
    back = lsat.hLsarLookupSids(rpc, policy, [f"{sid}-{rid}", "S-1-5-32-544", "S-1-1-0"])
    names = [name["Name"].lower() for name in back["TranslatedNames"]["Names"]]
    assert names == [USER, "administrators", "everyone"], names
    connection.logoff()


if __name__ == "__main__":
    sys.exit(run("impacket"))
